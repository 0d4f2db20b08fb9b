"""Drivers that take no notice of the lock of their flow, as on a disk that has none."""

from contextlib import nullcontext
from dataclasses import replace

from penstock.engine.run.driver import Driver


def unlocked(driver: Driver, kind: type[Driver] = Driver) -> Driver:
    """A driver of the same flow that every lock lets in."""
    return kind(driver.plan, replace(driver.context, lock=lambda decisions: nullcontext()))
