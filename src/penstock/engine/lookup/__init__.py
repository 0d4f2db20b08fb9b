"""Lookups: rows asked about outside, in batches, with a cache and a circuit breaker."""
