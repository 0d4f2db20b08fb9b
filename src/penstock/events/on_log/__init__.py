"""Events on the log: every store is an ordinary topic, and its writer knows the versions of all streams."""
