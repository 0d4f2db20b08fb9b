"""Messages on their way to the broker: sent, delayed, requeued, to the dead letters."""
