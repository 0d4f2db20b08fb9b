"""Messages on their way from the broker: received, leased, settled."""
