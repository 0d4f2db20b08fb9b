"""Consumers and workers: prefetch, leases that are extended, handlers, asyncio, effects that happen once."""
