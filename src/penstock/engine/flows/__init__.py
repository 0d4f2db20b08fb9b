"""Flows from outside: which there are, what belongs to each, starting over, going on behind an end, and doing away with them."""
