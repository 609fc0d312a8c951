"""What happens without a request: campaigns are watched, webhooks are sent, demo campaigns are filled."""
