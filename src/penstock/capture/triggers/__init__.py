"""Databases followed through triggers, which fill an outbox: where there is no log to read, or no right to read it."""
