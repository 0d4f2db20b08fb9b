"""The old end of a partition: rewritten into large frames, compacted, and let go when its time is over."""
