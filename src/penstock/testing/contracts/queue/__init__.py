"""What every kind of queue must pass, and a bench for trying it."""

from penstock.testing.contracts.queue.contract import QueueContract

__all__ = ["QueueContract"]
