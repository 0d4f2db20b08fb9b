"""The errors of sending and settling."""

from collections.abc import Sequence

from penstock.errors import BadInput, Full, LeaseLost, Unroutable
from penstock.queue.port import Limit, Message, QueueSpec


def full(spec: QueueSpec, waited: float) -> Full:
    return Full(
        f"queue {spec.name} is full: it holds at most {most(spec.limit)}",
        f"waited {waited:g} seconds for room; nothing of this was sent",
        hint="add consumers, wait longer (wait=), or choose another policy for the queue",
    )


def too_large(spec: QueueSpec) -> BadInput:
    return BadInput(
        f"batch exceeds the limit of queue {spec.name}: it holds at most {most(spec.limit)}", hint="send it in smaller batches"
    )


def unroutable(message: Message, source: str) -> Unroutable:
    return Unroutable(
        f"no queue of {source} takes a message with route {message.route!r}",
        "nothing of this was sent",
        hint="penstock queue list shows what each queue takes",
    )


def settled_before(id: str, fate: str) -> BadInput:
    if fate == "lost":
        return BadInput(f"message {id} was lost: its lease ran out", hint="do nothing more with it; it is delivered again")
    hint = "with auto=True a message is done as it is handed out" if fate == "auto" else "a message is settled once"
    return BadInput(f"message {id} is settled already: {fate}", hint=hint)


def lease_lost(queue: str, ids: Sequence[str], count: int) -> LeaseLost:
    """count: how many were to be settled."""
    others = f"the other {count - len(ids):,} are settled" if len(ids) < count else ""
    what = f"message {ids[0]}" if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1:,} more messages"
    return LeaseLost(
        f"the lease on {what} of queue {queue} had run out: it is delivered again",
        *([others] if others else []),
        hint="ask for a longer lease=, call message.extend() in between, or let Queue.work do it",
    )


def most(limit: Limit) -> str:
    """The limit in words; empty if there is none."""
    parts = [
        f"{limit.messages:,} messages" if limit.messages is not None else "",
        f"{limit.bytes:,} bytes" if limit.bytes is not None else "",
    ]
    return " and ".join(part for part in parts if part)
