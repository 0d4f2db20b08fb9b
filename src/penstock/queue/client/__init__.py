"""Whoever takes messages: consumers, prefetch, workers, leases that are kept."""
