"""Databases followed: their changes in the order of their transactions, each with a position, none lost and none doubled."""
