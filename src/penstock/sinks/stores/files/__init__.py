"""Tables of files as stores: Parquet behind a manifest, Delta, Iceberg."""
