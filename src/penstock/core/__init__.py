"""Values: record, change, schema, time, names. No input or output, no third party but pyarrow and numpy."""
