"""The client library pika, and its errors translated."""

import logging
from functools import cache
from typing import Any

from penstock.errors import LogError, install


@cache
def library() -> Any:
    """The module pika, loaded when a RabbitMQ is first used. What it logs, its calls raise, too."""
    try:
        import pika
        import pika.adapters.asyncio_connection
    except ImportError as error:
        raise LogError("RabbitMQ's client is not installed", str(error), hint=install("pika")) from error
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    return pika


def unreachable(where: str, why: str) -> LogError:
    return LogError(f"RabbitMQ at {where} cannot be used", why, hint="what was not acknowledged can be sent again")


def reason_of(error: BaseException | object) -> str:
    """What an error of the client says; never more than its reply, for its parameters hold passwords."""
    found: Any = error
    while getattr(found, "exceptions", None):  # of an attempt to connect: the last one that was tried
        found = found.exceptions[-1]
    found = getattr(found, "exception", found)
    if getattr(found, "reply_text", None):
        return f"{found.reply_code}: {found.reply_text}"
    return f"{type(found).__name__}: {found}" if str(found) else type(found).__name__
