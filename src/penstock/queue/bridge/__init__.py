"""Bridges between queues and topics."""
