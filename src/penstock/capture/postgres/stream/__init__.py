"""The stream of a slot: the replication connection, and its messages as batches of the port."""
