"""Databases followed by Debezium's engine, which runs in a process of its own."""
