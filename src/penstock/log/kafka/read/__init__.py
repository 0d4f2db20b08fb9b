"""Records fetched by explicit offsets, and as rows."""
