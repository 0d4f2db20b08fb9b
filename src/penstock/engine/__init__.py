"""Spark: session, sources, epochs, state, lowering of the graph; the only room that imports pyspark."""
