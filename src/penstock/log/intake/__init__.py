"""Rows on their way into a topic: read, checked, given key, time and partition; and out again as text."""
