"""Where a message of a queue stands in its topic: partition and offset as one number."""

_OFFSET_BITS = 48
OFFSET = (1 << _OFFSET_BITS) - 1  # the bits of a position that are the offset


def position_of(partition: int, offset: int) -> int:
    return partition << _OFFSET_BITS | offset


def partition_and_offset(position: int) -> tuple[int, int]:
    return position >> _OFFSET_BITS, position & OFFSET


def origin_of(topic: str, position: int) -> str:
    """As users see it: topic/partition/offset."""
    return f"{topic}/{position >> _OFFSET_BITS}/{position & OFFSET}"
