"""Tables of SQL databases as stores."""
