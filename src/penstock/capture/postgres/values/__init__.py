"""PostgreSQL's types, and its text of values as JSON."""
