"""Spark's connector for Kafka, as far as it can be had: the newest parts that there are, which work together."""

from pathlib import Path

from penstock.testing.servers.jars import fetched

CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


def connector() -> Path:
    """The directory with its jars; NotToBeHad where they cannot be fetched."""
    return fetched("spark-kafka-connector", *CONNECTOR, alone=True)
