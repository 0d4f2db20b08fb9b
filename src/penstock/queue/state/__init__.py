"""What a queue is at a moment: the rules of who holds which message."""
