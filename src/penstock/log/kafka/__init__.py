"""Kafka as the log: topics, records, transactions and readers of a broker, behind the port of the log."""
