"""The customers of the demo's shop: orders and payments out of order, a few late, a few unreadable. Seeded, without a clock."""

import heapq
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import orjson

OPENING = datetime(2026, 1, 15, 9, tzinfo=UTC)
PRODUCTS = {"apples": 320, "bread": 450, "cheese": 890, "coffee": 1250, "honey": 760, "tea": 540}  # name: price in cents
DISORDER = 8.0  # seconds of event time that a row may be overtaken by; the flow's lateness is 10
PAID_WITHIN = 40.0
PAYING = 0.85
LATE_ONE_IN, LATE_BY, LATE_FROM = 1_000, (100.0, 160.0), 170.0
BROKEN_ONE_IN = 4_000


class Arrivals(NamedTuple):
    """What comes in within a stretch of time, in the order of arrival: JSON lines."""

    orders: list[bytes]
    payments: list[bytes]


@dataclass
class Customers:
    """Orders at a steady rate, payments some seconds later. Times are seconds after OPENING."""

    per_second: float  # orders in a second of event time
    seed: int = 7
    orders: int = 0
    _now: float = 0.0
    _paying: list[tuple[float, bytes]] = field(default_factory=list)  # (arrival, line), the next one first

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def until(self, now: float) -> Arrivals:
        """Everything that arrives after the last call and up to now."""
        orders = []
        while self.orders < now * self.per_second:
            orders.append(self._order(self.orders / self.per_second))
            self.orders += 1
        self._now = max(self._now, now)
        return Arrivals(orders, self._paid(now))

    def rest(self) -> Arrivals:
        """The payments that are still on their way when the shop closes."""
        return Arrivals([], self._paid(float("inf")))

    def _order(self, arrival: float) -> bytes:
        chance, id = self._chance, f"o{self.orders:07d}"
        late = arrival > LATE_FROM and chance.randrange(LATE_ONE_IN) == 0
        at = max(0.0, arrival - (chance.uniform(*LATE_BY) if late else chance.uniform(0, DISORDER)))
        product = chance.choice(list(PRODUCTS))
        cents = PRODUCTS[product] * chance.randint(1, 4)
        broken = chance.randrange(BROKEN_ONE_IN) == 0
        if not (late or broken) and chance.random() < PAYING:
            self._pay(id, cents, max(at + chance.uniform(0.5, PAID_WITHIN), arrival))
        return _line({"order_id": id, "product": product, "cents": "a few coins" if broken else cents, "at": _text(at)})

    def _pay(self, id: str, cents: int, at: float) -> None:
        arrival = at + self._chance.uniform(0, DISORDER)
        heapq.heappush(self._paying, (arrival, _line({"order_id": id, "paid": cents, "at": _text(at)})))

    def _paid(self, now: float) -> list[bytes]:
        lines = []
        while self._paying and self._paying[0][0] <= now:
            lines.append(heapq.heappop(self._paying)[1])
        return lines


def _text(seconds: float) -> str:
    return (OPENING + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(row: dict[str, str | int]) -> bytes:
    return orjson.dumps(row)
