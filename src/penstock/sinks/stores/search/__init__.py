"""Search indexes as stores: SQLite's FTS5, tantivy, OpenSearch."""
