"""The graph: streams, verbs, validation, explain. Frozen values; building one touches no file, no clock, no JVM."""
