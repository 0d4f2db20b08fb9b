"""PostgreSQL followed through its write-ahead log: the replication connection, pgoutput decoded by columns, slots."""
