"""SQLite: its files opened, its tables described and read, its values as JSON."""
