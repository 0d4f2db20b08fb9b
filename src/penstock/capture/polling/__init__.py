"""Databases followed by reading their tables whole, now and then: what differs from the last time is what has changed."""
