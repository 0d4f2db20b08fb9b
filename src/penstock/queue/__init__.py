"""Work queues: single messages, handed out under a lease to whoever asks, until one of them acknowledges."""
