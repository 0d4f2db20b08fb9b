"""How often, how fast and for how long an action is tried."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict

from penstock.core.time import duration
from penstock.errors import BadInput


class SendingOptions(TypedDict, total=False):
    """What every action takes."""

    in_order_by: "str | list[str] | tuple[str, ...]"
    retries: int
    backoff: "str | timedelta"
    rate: float | None
    at_once: int
    closing: "str | timedelta"


@dataclass(frozen=True)
class Sending:
    """The settings of a sender. in_order_by: rows that agree in these columns go out one after the other, () = in no order;
    tries: how often a row is tried before it is a dead letter; backoff: before the second try, doubled before each further one;
    rate: actions a second at most; at_once: actions under way at most; closing: how long a run that ends goes on sending."""

    in_order_by: tuple[str, ...] = ()
    tries: int = 9
    backoff: timedelta = timedelta(seconds=1)
    rate: float | None = None
    at_once: int = 16
    closing: timedelta = timedelta(seconds=30)
    longest: timedelta = timedelta(minutes=5)  # between two tries, and the longest pause that a receiver is granted is ten times it
    opens_after: int = 5  # failures in a row, and the receiver is left alone but for a probe now and then

    @classmethod
    def of(cls, given: SendingOptions) -> "Sending":
        """The settings as users write them, checked."""
        by, retries, rate = given.get("in_order_by", ()), given.get("retries", 8), given.get("rate")
        at_once = given.get("at_once", 16)
        for name, value, least in (("retries", retries, 0), ("at_once", at_once, 1)):
            if not isinstance(value, int) or value < least:
                raise BadInput(f"{name} cannot be {value!r}", hint=f"give a whole number from {least} on")
        if rate is not None and not (isinstance(rate, int | float) and rate > 0):
            raise BadInput(f"rate cannot be {rate!r}", hint="give actions a second: rate=50")
        backoff = duration(given.get("backoff", "1 second"), "backoff")
        closing = duration(given.get("closing", "30 seconds"), "closing")
        return cls((by,) if isinstance(by, str) else tuple(by), retries + 1, backoff, rate, at_once, closing)
