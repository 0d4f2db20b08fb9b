"""penstock events: look into event stores."""
