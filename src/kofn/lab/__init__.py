"""What researchers measure with."""
