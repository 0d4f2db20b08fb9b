"""Rows of a stream with the versions of a table that they see."""
