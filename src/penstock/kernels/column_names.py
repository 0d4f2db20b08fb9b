"""Columns that several kernels keep in their state, or have while they compute: no other room sees them."""

START = "__start"  # int64: the first instant of the window that a partial result belongs to
FIRST = "__first"  # int64: the time of the first row of a window, a session or a part of one
LAST = "__last"  # int64: the time of the last one, or of the newest row of a group
GROUP = "__group"  # int64: the number of the group that a value belongs to
NUMBER = "__number"  # int64: numbers windows of a key, sessions or keys
GONE = "__gone"  # bool: the row was deleted
ROW = "__row"  # int64: where a row stands among those of a step
