"""The only room that opens data files: append, fsync, publish exclusively, list; real and faulty."""
