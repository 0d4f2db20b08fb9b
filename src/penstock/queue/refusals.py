"""What is said when messages cannot be taken."""

from penstock.errors import BadInput, Full, Unroutable
from penstock.queue.port import Limit, Message, QueueSpec


def full(spec: QueueSpec, waited: float) -> Full:
    return Full(
        f"queue {spec.name} is full: {_words(spec.limit)}",
        f"waited {waited:g} seconds for room; nothing of this was sent",
        hint="add consumers, wait longer (wait=), or choose another policy for the queue",
    )


def too_large(spec: QueueSpec) -> BadInput:
    return BadInput(f"so much never fits into queue {spec.name}: {_words(spec.limit)}", hint="send it in smaller parts")


def unroutable(message: Message, source: str) -> Unroutable:
    return Unroutable(
        f"no queue of {source} takes a message with the route {message.route or 'that is empty'!r}",
        "nothing of this was sent",
        hint="penstock queue list shows what each queue takes",
    )


def _words(limit: Limit) -> str:
    parts = [
        f"{limit.messages:,} messages" if limit.messages is not None else "",
        f"{limit.bytes:,} bytes" if limit.bytes is not None else "",
    ]
    return f"it holds at most {' and '.join(part for part in parts if part)}"
