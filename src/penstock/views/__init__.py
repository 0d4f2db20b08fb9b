"""What is served: rows, by key, history, as-of queries."""
