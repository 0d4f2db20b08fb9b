"""Copies of tables in chunks, merged with the stream by visibility; a chunk lies on disk until it is written."""
