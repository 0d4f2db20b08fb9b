"""Groups of readers: who owns which partition, how far the group has come, and a consumer that takes part."""
