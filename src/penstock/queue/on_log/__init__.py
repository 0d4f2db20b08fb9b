"""Queues on the log: any topic, read as a queue."""
