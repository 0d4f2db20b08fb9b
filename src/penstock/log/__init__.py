"""Append-only partitioned log: port, memory, file (embedded)."""
