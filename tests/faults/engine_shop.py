"""Two flows, the second over the first one's topic; what goes into them; and what must come out, in plain Python."""

import json
import os
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from penstock import Flow, Tumbling, View, agg
from penstock.engine.execute.placement import InProcess, Placement
from penstock.engine.run import loop
from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.engine.run.progress import balance
from penstock.engine.run.runtime import Runtime
from penstock.log.file.log import FileLog
from penstock.log.open import open_log
from penstock.log.port import TopicSpec
from penstock.log.producer import Producer
from penstock.storage.local import LocalStorage

START = datetime(2024, 1, 15, 10, tzinfo=UTC)
LATENESS = timedelta(seconds=10)
MINUTE, FIVE = timedelta(minutes=1), timedelta(minutes=5)
ORDERS = "order_id string, user string, amount long, at timestamp"
PAYMENTS = "order_id string, paid long, at timestamp"
UNREADABLE = b'{"order_id": "x", "user": "u0", "amount": "many", "at": "2024-01-15T09:00:00Z"}'
EPOCH_ROWS = 50
Shown = tuple[Any, ...]


def shop(through: Callable[[pa.Table], pa.Table] | None = None) -> Flow:
    """Windows to a view and a topic, a left join to a view; late and unreadable rows go to the flow's own topics. through: orders
    pass a function first, which must leave them as they are."""
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness=LATENESS, idle="1 hour")
    orders = orders.map_arrow(through, ORDERS, name="passed") if through else orders
    payments = flow.stream("payments", PAYMENTS, time="at", lateness=LATENESS, idle="1 hour")
    sales = orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), total=agg.sum("amount"), name="sales")
    sales.view("sales").to("sales_topic", key="user", partitions=2)
    orders.join(payments, on="order_id", within="2 minutes", how="left", name="settled").view("settled")
    return flow


def report() -> Flow:
    """A second flow over the topic that the first one writes."""
    flow = Flow("report")
    sales = flow.stream("sales_topic", "user string, n long, total long")
    sums = sales.window(Tumbling("5 minutes"), by="user").agg(n=agg.sum("n"), total=agg.sum("total"), name="report")
    sums.view("report")
    return flow


class Order(NamedTuple):
    order_id: str
    user: str
    amount: int
    at: datetime


class Payment(NamedTuple):
    order_id: str
    paid: int
    at: datetime


@dataclass(frozen=True)
class Input:
    orders: list[list[Order | bytes]]  # by partition; bytes: what cannot be read
    payments: list[Payment]


def make_input(rows: int = 120, seed: int = 7) -> Input:
    """Disorder within the lateness, some rows far behind it, some whose amount is no number, one in the far future."""
    rng = random.Random(seed)
    orders: list[list[Order | bytes]] = [[], []]
    payments: list[Payment] = []
    for n in range(rows):
        behind = 150 if n % 40 == 39 else rng.randrange(9)
        at = START + timedelta(seconds=3 * n - behind, microseconds=n)
        order = Order(f"o{n}", f"u{n % 5}", rng.randrange(100), at)
        orders[n % 2].append(order)
        if n % 3:
            payments.append(
                Payment(order.order_id, order.amount, START + timedelta(seconds=3 * n + rng.randrange(9), microseconds=n))
            )
        if n % 50 == 30:
            orders[n % 2].append(UNREADABLE)
    orders[0].insert(20, Order("future", "u0", 1, datetime.now(UTC) + timedelta(days=36_525)))
    return Input(orders, payments)


def log_of(home: Path) -> Any:
    """The log that PENSTOCK_LOG names, else the one of the home, without its syncs."""
    return open_log(home) if os.environ.get("PENSTOCK_LOG") else FileLog(LocalStorage(str(home / "log"), sync=False))


def fill(home: Path, given: Input, frame: int = 20) -> Any:
    """The topics of the first flow: orders as raw JSON in two partitions, payments typed."""
    log = log_of(home)
    orders = Producer(log.create(TopicSpec("orders", 2, time="at")), batch_rows=frame, linger="1 day")
    for number, rows in enumerate(given.orders):
        for row in rows:
            orders.send(row if isinstance(row, bytes) else _json(row), partition=number)
        orders.flush()
    payments = log.create(TopicSpec("payments", 1, _schema(PAYMENTS), "at"))
    with Producer(payments, batch_rows=frame, linger="1 day") as producer:
        for payment in given.payments:
            producer.send(payment._asdict())
    return log


def _json(row: Order) -> bytes:
    return json.dumps(row._asdict() | {"at": row.at.isoformat()}).encode()


def _schema(ddl: str) -> Any:
    from penstock import Schema

    return Schema.of(ddl)


class SparkFree(Runtime):
    """The real home, log, state and sinks; only the work is done in this process."""

    tasks = 2

    def place(self, rows: int) -> Placement:
        return InProcess()

    def _sql(self) -> None:
        return None


def drain(home: Path) -> None:
    """What `penstock run --drain` does, for one flow after the other."""
    drained(home, shop(), rows=EPOCH_ROWS)
    drained(home, report(), rows=EPOCH_ROWS // 6)


def drained(home: Path, *flows: Flow, rows: int = EPOCH_ROWS) -> None:
    runtime = SparkFree(home)
    for flow in flows:
        driver = runtime.driver(runtime.plan(flow))
        driver.start()
        loop.drain(driver, threading.Event(), lambda report: None, rows)
        driver.stop()


# what must come out


@dataclass
class Oracle:
    sales: Counter[Shown]
    settled: Counter[Shown]
    report: Counter[Shown]
    late: Counter[Shown]  # step, position
    dead: Counter[Shown]  # position


class Judged(NamedTuple):
    row: Any
    late_for_window: bool
    late_for_join: bool
    where: Shown


def oracle(given: Input) -> Oracle:
    dead: Counter[Shown] = Counter()
    orders = [j for number, rows in enumerate(given.orders) for j in _judged("orders", number, rows, dead)]
    payments = list(_judged("payments", 0, given.payments, dead))
    late = Counter(("sales", *j.where) for j in orders if j.late_for_window)
    late += Counter(("settled", *j.where) for j in [*orders, *payments] if j.late_for_join)
    sales = _folded((j.row.user, _floor(j.row.at, MINUTE), 1, j.row.amount) for j in orders if not j.late_for_window)
    sums = _folded((user, _floor(start + MINUTE - timedelta(microseconds=1), FIVE), n, t) for user, start, n, t in sales)
    settled = _settled([j.row for j in orders if not j.late_for_join], [j.row for j in payments if not j.late_for_join])
    return Oracle(sales, settled, sums, late, dead)


def _judged(topic: str, number: int, rows: Any, dead: Counter[Shown]) -> Iterator[Judged]:
    """W(r): the greatest plausible time before it in its partition, less the lateness."""
    greatest: datetime | None = None
    for offset, row in enumerate(rows):
        where = (topic, number, offset)
        if isinstance(row, bytes) or row.at > START + timedelta(days=3650):
            dead[where] += 1
            continue
        watermark = greatest - LATENESS if greatest else None
        end = _floor(row.at, MINUTE) + MINUTE
        yield Judged(row, watermark is not None and end <= watermark, watermark is not None and row.at < watermark, where)
        greatest = max(greatest or row.at, row.at)


def _floor(at: datetime, size: timedelta) -> datetime:
    return at - (at - datetime(1970, 1, 1, tzinfo=UTC)) % size


def _folded(rows: Iterator[tuple[str, datetime, int, int]]) -> Counter[Shown]:
    out: dict[tuple[str, datetime], list[int]] = defaultdict(lambda: [0, 0])
    for user, start, n, total in rows:
        out[user, start][0] += n
        out[user, start][1] += total
    return Counter((*key, *values) for key, values in out.items())


def _settled(orders: list[Order], payments: list[Payment]) -> Counter[Shown]:
    by_id = defaultdict(list)
    for payment in payments:
        by_id[payment.order_id].append(payment)
    out: Counter[Shown] = Counter()
    for order in orders:
        partners = [p for p in by_id[order.order_id] if abs(p.at - order.at) <= timedelta(minutes=2)]
        for partner in partners or [None]:
            out[order.order_id, order.amount, partner.paid if partner else None] += 1
    return out


# what came out


def found(home: Path) -> Oracle:
    """The same of a home that was run to its end."""
    log = log_of(home)
    sales = Counter((r["user"], r["window_start"], r["n"], r["total"]) for r in view(home, "sales"))
    topic = Counter((r["user"], r["window_start"], r["n"], r["total"]) for r in topic_rows(log, "sales_topic"))
    assert topic == sales, "the topic and the view of one step differ"
    settled = Counter((r["order_id"], r["amount"], r["paid"]) for r in view(home, "settled"))
    sums = Counter((r["user"], r["window_start"], r["n"], r["total"]) for r in view(home, "report"))
    rank = {(name, *place): number for name in ("orders", "payments") for place, number in _ranks(log.topic(name)).items()}
    letters = {kind: topic_rows(log, f"shop.{kind}") for kind in ("late", "dead")}
    places = {k: [(r["topic"], r["partition"], rank[r["topic"], r["partition"], r["offset"]]) for r in letters[k]] for k in letters}
    late = Counter((r["step"], *place) for r, place in zip(letters["late"], places["late"], strict=True))
    dead = Counter(places["dead"])
    return Oracle(sales, settled, sums, late, dead)


def check(home: Path, given: Input) -> None:
    """Exactly once: every row where it belongs, none lost, none doubled; and the books balance."""
    expected, got = oracle(given), found(home)
    for name in ("sales", "settled", "report", "late", "dead"):
        mine, theirs = getattr(got, name), getattr(expected, name)
        assert mine == theirs, (
            f"{name}: doubled or wrong {list((mine - theirs).items())[:5]}, missing {list((theirs - mine).items())[:5]}"
        )
    for flow in ("shop", "report"):
        last = last_decision(home, flow)
        assert [(step, rows) for step, rows, known in balance(last.fates) if rows != known] == []
    assert last_decision(home, "shop").fates["orders"]["in"] == sum(map(len, given.orders))


def _ranks(topic: Any) -> dict[tuple[int, int], int]:
    """(partition, offset) of every record -> how many of its partition came before it: the same on a log with gaps."""
    found = {p: [int(o) for chunk in topic.read(p) for o in chunk.offsets] for p in topic.ends()}
    return {(p, offset): number for p, offsets in found.items() for number, offset in enumerate(offsets)}


def last_decision(home: Path, flow: str) -> Decision:
    last = Decisions(LocalStorage(str(home / "flows" / flow)), flow).last()
    assert last
    return last


def view(home: Path, name: str) -> list[dict[str, Any]]:
    with View(home / "views", name) as opened:
        return opened.rows().to_pylist()  # type: ignore[no-any-return]


def topic_rows(log: Any, name: str) -> list[dict[str, Any]]:
    topic = log.topic(name)
    return [row for p in topic.ends() for chunk in topic.read(p) for row in chunk.rows.to_pylist()]
