"""The database: its tables and their migrations, statements, group commits, and backups."""
