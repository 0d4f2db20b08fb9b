"""State as files: runs, buckets, and what is in them."""
