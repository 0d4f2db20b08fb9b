"""Values of records: JSON, Avro, and Avro whose schemas stand in a registry."""
