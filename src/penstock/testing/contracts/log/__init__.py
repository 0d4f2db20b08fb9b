"""What every log must pass, and topics and rows for trying it."""

from penstock.testing.contracts.log.contract import LogContract

__all__ = ["LogContract"]
