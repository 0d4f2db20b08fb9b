"""A flow looked at from outside: why, what if, timelines, disorder, books. Needs no Spark."""
