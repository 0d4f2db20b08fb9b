"""The verbs of a stream, by family: what a user writes, checked, becomes nodes of the plan."""
