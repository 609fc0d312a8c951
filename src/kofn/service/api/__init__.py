"""What answers requests: the routes, live updates, and the script for web pages."""
