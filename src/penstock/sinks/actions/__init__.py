"""Actions in the world: each row of an append-only step is sent to somebody, at least once, with a key that stays the same."""
