"""penstock bridge."""
