"""penstock queue."""
