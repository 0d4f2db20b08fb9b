"""Delivery: each sink takes every decided epoch whole, once, in order. Here are the stores and actions a flow can write to."""

from penstock.sinks.stores.postgres import postgres
from penstock.sinks.stores.sqlite import sqlite

__all__ = ["postgres", "sqlite"]
