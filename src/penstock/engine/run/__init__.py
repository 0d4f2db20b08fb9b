"""A run from its start to its end: the driver, its loop, and the six steps of an epoch."""
