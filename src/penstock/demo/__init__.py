"""penstock demo: a shop, live in the terminal, with crashes in the middle."""
