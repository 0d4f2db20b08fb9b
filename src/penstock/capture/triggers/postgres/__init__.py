"""An outbox in PostgreSQL, filled by triggers in the transactions of others and read by what is visible."""
