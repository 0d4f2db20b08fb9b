"""Penstock: stream processing on Spark, in Python. The log is the truth; everything else is a view kept up to date, exactly once."""
