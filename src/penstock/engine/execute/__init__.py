"""A program in its tasks: rows pushed from step to step, in this process or on Spark."""
