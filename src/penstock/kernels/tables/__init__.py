"""Current rows, groups over them, and joins of tables."""
