"""penstock group."""
