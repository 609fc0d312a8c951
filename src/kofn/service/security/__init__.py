"""What protects the service: tokens, limits, cross-origin rules and security headers."""
