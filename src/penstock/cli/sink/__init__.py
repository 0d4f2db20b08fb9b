"""penstock sink: what flows write to."""
