"""Windows: fixed, sessions, counts, sliding, running."""
