"""Aggregates, kinds of windows and a join from outside the package (tests/toys): in any cut they tell what their definition says,
are printed, identified and pruned like Penstock's own, and what they cannot take is refused."""

import math
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Flow, Tumbling, agg
from penstock.errors import BadFlow, BadInput
from penstock.flow.explain import as_text
from penstock.flow.stream import Stream
from penstock.plan import Plan
from penstock.plan.meaning import fingerprint
from penstock.testing.driver import FlowTest
from toys.aggregates import Frequent, Product
from toys.joins import NearestDefinition
from toys.rows import ShoutDefinition
from toys.windows import BusinessDays, InPairs, Shifts

Start = Callable[..., FlowTest]
Row = dict[str, Any]

MONDAY = datetime(2024, 1, 15, tzinfo=UTC)
COLUMNS = "user string, kind string, factor int, unread string, at timestamp"


def made(seed: int, rows: int, hours: float) -> list[Row]:
    """Rows out of order by less than a minute; some values are null."""
    rng = random.Random(seed)
    times = sorted(rng.uniform(0, hours * 3600) for _ in range(rows))
    return [
        {
            "user": rng.choice(("ann", "bob")),
            "kind": rng.choice(("a", "b", "c", None)),
            "factor": rng.choice((1, 2, -2, None)),
            "unread": "x",
            "at": MONDAY + timedelta(seconds=round(time + rng.uniform(0, 50), 3)),
        }
        for time in times
    ]


def product(rows: Sequence[Row]) -> float:
    return float(math.prod(row["factor"] for row in rows if row["factor"] is not None))


def frequent(rows: Sequence[Row], n: int) -> list[str]:
    counts = Counter(row["kind"] for row in rows if row["kind"] is not None)
    return sorted(counts, key=lambda kind: (-counts[kind], kind))[:n]


BOTH = {"p": agg.of(Product(), "factor"), "f": agg.of(Frequent(2), "kind")}


def told(rows: Sequence[Row]) -> tuple[float, list[str]]:
    return product(rows), frequent(rows, 2)


def flow_of(make: Callable[[Stream], Stream]) -> Flow:
    flow = Flow("toys")
    orders = flow.stream("orders", COLUMNS, time="at", lateness="1 minute")
    make(orders).view("out")
    return flow


def ran(t: FlowTest, rows: Sequence[Row], cut: int) -> list[Row]:
    """What a flow tells of rows that come in two lots, in epochs of so many, with a restart between."""
    half = len(rows) // 2
    t.send("orders", *rows[:half])
    while t.epoch(cut):
        pass
    t.restart(buckets=3)
    t.send("orders", *rows[half:])
    while t.epoch(cut):
        pass
    t.end()
    return t.rows("out")


def copied(plan: Plan) -> Plan:
    """As tasks get it."""
    found = pickle.loads(pickle.dumps(plan))  # noqa: S301 - of one's own
    assert isinstance(found, Plan)
    return found


def by_window(rows: Sequence[Row], windows: Callable[[datetime], Iterator[datetime]]) -> dict[tuple[str, datetime], list[Row]]:
    found = dict[tuple[str, datetime], list[Row]]()
    for row in rows:
        for start in windows(row["at"]):
            found.setdefault((row["user"], start), []).append(row)
    return found


CUTS = pytest.mark.parametrize("cut", [3, 7, 1000])


# aggregates


@CUTS
def test_aggregates_from_outside_tell_what_they_are_in_windows(cut: int, flow_test: Start) -> None:
    rows = made(1, 60, 0.2)
    t = flow_test(flow_of(lambda orders: orders.window(Tumbling("5 minutes"), by="user").agg(**BOTH)))
    found = {(row["user"], row["window_start"]): (row["p"], row["f"]) for row in ran(t, rows, cut)}
    five = timedelta(minutes=5)
    expected = by_window(rows, lambda at: iter([MONDAY + (at - MONDAY) // five * five]))
    assert found == {key: told(mine) for key, mine in expected.items()}


def test_they_slide_run_on_and_follow_a_table_whose_rows_change(flow_test: Start) -> None:
    rows = made(2, 30, 0.1)
    flow = Flow("toys")
    orders = flow.stream("orders", COLUMNS, time="at", lateness="1 minute")
    orders.group_by("user").agg(**BOTH).view("out")
    orders.latest(by="kind").group_by("user").agg(**BOTH).view("table")
    orders.last("1 hour").group_by().agg(**BOTH).view("gone")
    t = flow_test(flow)
    assert {row["user"]: (row["p"], row["f"]) for row in ran(t, rows, 4)} == {
        user: told([row for row in rows if row["user"] == user]) for user in ("ann", "bob")
    }
    newest = {row["kind"]: row for row in sorted(rows, key=lambda row: row["at"]) if row["kind"] is not None}
    of_users = {row["user"]: (row["p"], row["f"]) for row in t.rows("table")}
    assert of_users == {u: told([r for r in newest.values() if r["user"] == u]) for u in {r["user"] for r in newest.values()}}
    assert t.rows("gone") == []


def test_over_the_rows_before_each_row(flow_test: Start) -> None:
    from penstock import Sliding

    rows = made(3, 40, 0.2)
    t = flow_test(flow_of(lambda orders: orders.window(Sliding("3 minutes"), by="user").agg(**BOTH)))
    found = {(row["user"], row["at"]): (row["p"], row["f"]) for row in ran(t, rows, 5)}
    for row in rows:
        before = [r for r in rows if r["user"] == row["user"] and row["at"] - timedelta(minutes=3) < r["at"] <= row["at"]]
        assert found[row["user"], row["at"]] == told(before)


def test_an_aggregate_from_outside_is_printed_identified_pruned_and_pickled(flow_test: Start) -> None:
    def of(n: int) -> Flow:
        more = {"q": agg.of(Frequent(n), "upper(kind)"), **BOTH}
        return flow_of(lambda orders: orders.window(Tumbling("5 minutes"), by="user", late="ignore").agg(**more, name="told"))

    one, other = flow_test(of(2)), flow_test(of(3))
    assert "f = toy_frequent(kind, 2)" in as_text(one.plan)
    assert "p = toy_product(factor)" in as_text(one.plan)
    meanings = {a["name"]: a for a in one.plan.step("told").node.meaning()["aggregates"]}
    expected = {"name": "f", "function": "toy_frequent", "columns": ["kind"], "of_rows": False, "type": "array<string>"}
    assert meanings["f"] == expected | {"options": [2]}
    assert fingerprint(one.plan) != fingerprint(other.plan)
    assert set(one.plan.step("orders").schema.names) == {"user", "kind", "factor", "at"}
    assert copied(one.plan) == one.plan


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda: agg.of(Product(), "kind"), "cannot take toy_product of 'kind', which is string: it takes numbers"),
        (lambda: agg.of(Product(), "missing"), "there is no column 'missing'"),
        (lambda: agg.of("product", "factor"), "cannot aggregate by 'product'"),  # type: ignore[arg-type]
    ],
)
def test_what_it_cannot_take_is_refused_where_it_was_written(write: Callable[[], Any], what: str) -> None:
    with pytest.raises(BadInput, match=what):
        flow_of(lambda orders: orders.group_by("user").agg(x=write())).test()


def test_a_name_that_penstock_has_itself_is_refused() -> None:
    class Sum(Product):
        name = "sum"

    with pytest.raises(BadFlow, match="Penstock has an aggregate 'sum' of its own"):
        flow_of(lambda orders: orders.group_by("user").agg(x=agg.of(Sum(), "factor"))).test()


# kinds of windows


def workday(at: datetime) -> Iterator[datetime]:
    if at.weekday() < 5:
        yield at.replace(hour=0, minute=0, second=0, microsecond=0)


def shifts(at: datetime) -> Iterator[datetime]:
    hour = at.replace(minute=0, second=0, microsecond=0)
    yield hour
    if at - hour < timedelta(minutes=30):
        yield hour - timedelta(hours=1)


@CUTS
@pytest.mark.parametrize("how", [{}, {"emit": "updates"}, {"late": "correct", "allowed": "1 hour"}], ids=str)
@pytest.mark.parametrize(
    ("window", "windows", "hours"), [(BusinessDays(), workday, 24 * 9), (Shifts(90), shifts, 5)], ids=["business days", "shifts"]
)
def test_windows_from_outside_hold_the_rows_that_lie_in_them(
    window: Any, windows: Any, hours: float, how: dict[str, Any], cut: int, flow_test: Start
) -> None:
    rows = made(4, 60, hours)
    t = flow_test(flow_of(lambda orders: orders.window(window, by="user", **how).agg(n=agg.count(), p=BOTH["p"], name="told")))
    found = {(row["user"], row["window_start"]): (row["n"], row["p"]) for row in ran(t, rows, cut)}
    assert found == {key: (len(mine), product(mine)) for key, mine in by_window(rows, windows).items()}
    assert t.fates("told").get("outside", 0) == sum(not list(windows(row["at"])) for row in rows)


def test_a_kind_of_window_from_outside_is_printed_identified_and_pruned(flow_test: Start) -> None:
    def of(window: Any) -> Flow:
        return flow_of(lambda orders: orders.window(window, by="user", late="ignore", name="told").agg(n=agg.count()))

    one, other = flow_test(of(Shifts(90))), flow_test(of(Shifts(91)))
    assert "told  (shifts," in as_text(one.plan)
    assert "size     90 minutes from each hour" in as_text(one.plan)
    assert one.plan.step("told").node.meaning()["layout"] == {"is": "toy-shifts/1", "minutes": 90}
    assert fingerprint(one.plan) != fingerprint(other.plan)
    assert set(one.plan.step("orders").schema.names) == {"user", "at"}
    assert copied(one.plan) == one.plan


@CUTS
def test_a_kind_of_window_may_bring_a_node_and_a_kernel_of_its_own(cut: int, flow_test: Start) -> None:
    rows = made(8, 41, 1)
    t = flow_test(flow_of(lambda orders: orders.window(InPairs(), by="user", name="told").agg(p=BOTH["p"])))
    found = sorted((row["user"], row["p"]) for row in ran(t, rows, cut))
    expected = []
    for user in ("ann", "bob"):
        mine = sorted((row for row in rows if row["user"] == user), key=lambda row: row["at"])
        expected += [(user, product(pair)) for pair in zip(mine[::2], mine[1::2], strict=False)]
    assert found == sorted(expected)
    assert "told  (pairs of rows," in as_text(t.plan)
    with pytest.raises(BadFlow, match="InPairs windows cannot be corrected"):
        flow_of(lambda orders: orders.window(InPairs(), late="correct", allowed="1 hour").agg(n=agg.count())).test()


# a join


def nearest_flow() -> Flow:
    flow = Flow("toys")
    orders = flow.stream("orders", COLUMNS, time="at", lateness="1 minute")
    clicks = flow.stream("clicks", COLUMNS, time="at", lateness="1 minute")
    near = orders.step(NearestDefinition(("user",), timedelta(minutes=2)), clicks, name="near")
    near.select("user", "at", "kind", "clicks_at", "clicks_kind").view("out")
    near.late.view("late")
    return flow


@CUTS
def test_a_join_from_outside_finds_the_nearest_row(cut: int, flow_test: Start) -> None:
    orders, clicks = made(5, 40, 1), made(6, 40, 1)
    t = flow_test(nearest_flow())
    t.send("clicks", *clicks)
    found = {(row["user"], row["at"]): row["clicks_at"] for row in ran(t, orders, cut)}
    assert len(found) == len(orders)
    for row in orders:
        near = [c for c in clicks if c["user"] == row["user"] and abs(c["at"] - row["at"]) <= timedelta(minutes=2)]
        best = min(near, key=lambda click: (abs(click["at"] - row["at"]), click["at"]), default=None)
        assert found[row["user"], row["at"]] == (best["at"] if best else None)
    assert t.fates("near") == {"in": 80, "on time": 80}


def test_its_late_rows_have_the_columns_of_the_joined_row_and_its_plan_is_pruned(flow_test: Start) -> None:
    t = flow_test(nearest_flow())
    one, two, late = (made(7, 1, 0)[0] | {"at": MONDAY + timedelta(hours=h)} for h in (1, 2, 0))
    t.send("orders", one, two)
    t.send("clicks", one, two, late | {"kind": "late"})
    t.end()
    assert [(row["kind"], row["clicks_kind"]) for row in t.rows("late")] == [(None, "late")]
    assert t.fates("near") == {"in": 5, "on time": 4, "diverted": 1}
    assert "on       user, the nearest" in as_text(t.plan)
    assert t.plan.step("near").node.meaning()["is"] == "toy-nearest/1"
    assert copied(t.plan) == t.plan


def test_a_join_from_outside_reads_only_what_is_read_of_it(flow_test: Start) -> None:
    flow = Flow("toys")
    orders = flow.stream("orders", COLUMNS, time="at", lateness="1 minute")
    clicks = flow.stream("clicks", COLUMNS, time="at", lateness="1 minute")
    orders.step(NearestDefinition(("user",), timedelta(minutes=2), "ignore"), clicks).select("user", "clicks_kind").view("out")
    t = flow_test(flow)
    assert set(t.plan.step("orders").schema.names) == {"user", "at"}
    assert set(t.plan.step("clicks").schema.names) == {"user", "kind", "at"}


def test_a_step_that_calls_no_row_late_has_no_late_rows(flow_test: Start) -> None:
    flow = Flow("toys")
    flow.stream("orders", COLUMNS, time="at", lateness="1 minute").step(ShoutDefinition("user")).late.view("late")
    with pytest.raises(BadFlow, match=r"cannot read the late rows of shout.*: it calls none late"):
        flow.test()
