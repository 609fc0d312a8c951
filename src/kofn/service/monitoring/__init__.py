"""What operators watch: health, metrics and logs."""
