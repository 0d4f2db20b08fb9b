"""An outbox in a file of SQLite, filled by triggers and read in the order of commits."""
