"""penstock dead."""
