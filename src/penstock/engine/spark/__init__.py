"""Spark itself: the session, its JVM, its settings, clusters and what they are sent."""
