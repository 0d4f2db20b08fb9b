"""Keys of a Redis or Valkey as a store."""
