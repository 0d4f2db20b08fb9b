"""SQL that users write: what it may say, what type it has, and where Polars means the same as Spark."""
