"""penstock topic."""
