"""Aggregates: what is kept of a group, and how results are read off it."""
