"""What every engine of captures must pass, and a capture of a database for trying it."""

from penstock.testing.contracts.capture.contract import CaptureContract

__all__ = ["CaptureContract"]
