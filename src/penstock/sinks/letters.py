"""What a flow's own topic of dead letters holds, whoever writes them."""

from penstock.core.schema import Schema


def dead_topic(flow: str) -> str:
    """shop.dead"""
    return f"{flow}.dead"


def dead_schema() -> Schema:
    """Its columns. expression: on which the row failed, null where it could not be read at all; of an action, whom it was for."""
    where = "topic string, partition int, offset long, time timestamp, watermark timestamp"
    return Schema.of(f"step string, reason string, {where}, row string, expression string")
