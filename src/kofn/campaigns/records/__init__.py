"""What is stored about a campaign, and the transaction in which it is read and written."""
