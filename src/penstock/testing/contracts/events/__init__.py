"""What every store of events must pass, and events for trying it."""

from penstock.testing.contracts.events.contract import EventStoreContract

__all__ = ["EventStoreContract"]
