"""Groups of readers, kept by the broker."""
