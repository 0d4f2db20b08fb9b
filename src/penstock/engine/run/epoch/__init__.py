"""The steps of an epoch, a file each: open, segments (read and run), decide, deliver, sweep; and what a decision holds."""
