"""penstock cdc."""
