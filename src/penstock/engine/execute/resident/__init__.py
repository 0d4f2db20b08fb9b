"""A Spark task that stays: small epochs are sent to it instead of being Spark jobs of their own."""
