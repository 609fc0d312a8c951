"""What a campaign reports: insight, alarms, decisions, verification, and lists of many campaigns."""
