"""Work queues: each message is leased to one consumer at a time, until one of them acknowledges it."""
