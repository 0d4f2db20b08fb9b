"""Parquet files behind a manifest: which files count, and up to which epoch, is one file that is published exclusively."""
