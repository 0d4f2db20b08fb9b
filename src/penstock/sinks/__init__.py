"""Delivery: each sink takes every decided epoch whole, once, in order."""
