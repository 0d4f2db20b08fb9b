"""Batches written to the log, each exactly once: envelopes, the journal, fenced topics, and what the log knows of rows."""
