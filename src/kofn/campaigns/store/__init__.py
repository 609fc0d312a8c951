"""The database: its tables and their version, statements, group commits, and backups."""
