"""A PostgreSQL followed into the log: its snapshot, backlogs of large transactions and of single changes, how long a commit takes
into its topic and into a view, the memory that a large transaction needs, and what the source pays. Debezium's engine beside it.

The server runs on the same cores; each side takes a backlog in a process of its own. The snapshot and the backlogs go through the
whole of a capture, into the synced topics of the embedded log."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from measuring import Meter, Peak, median, percentile
from report import Table, milliseconds, options, parsed, percent, publish, rate
from sides import apart, is_side, run_side

from penstock import View
from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import kind_of
from penstock.capture.port import Batch
from penstock.capture.registry import Captures
from penstock.capture.runner import CaptureRun
from penstock.core.columns import KEY
from penstock.errors import NotFound
from penstock.log.open import open_log
from penstock.storage.home import make_private
from penstock.testing.servers.debezium import package
from penstock.testing.servers.jars import NotToBeHad
from penstock.testing.servers.postgres import PostgresServer

ORDERS = (
    "create table {} (id bigint primary key, buyer int not null, amount numeric(10, 2), state text, at timestamptz default now())"
)
FILL = "insert into {} select i, i % 1000, (i % 100000) / 100.0, 'new', now() from generate_series(1, {}) i"
SINGLES = "do $$ begin for i in 1..{1} loop insert into {0} values (i, i % 1000, 1.5, 'new'); commit; end loop; end $$"
TRANSACTION = 20_000  # rows of a large transaction
PATIENCE = 60.0
_FLOW = """
from penstock import Flow

flow = Flow("latest")
flow.table("bench.public.live").view("live")
"""


def added(home: Path, url: str, table: str, engine: str = "postgres", name: str = "bench") -> CaptureDefinition:
    """A capture of one table, set up: changes from here on will come."""
    wanted = CaptureDefinition(name, engine, url, (("public", table),), id=name)
    definition = kind_of(engine).set_up(wanted)
    Captures(home).add(definition)
    return definition


class Counted:
    """An engine that counts, and remembers from when on it was asked, and when the last batch was written. Of one that starts a
    JVM first, only what comes behind its first batch counts."""

    def __init__(self, engine: Any, jvm: bool) -> None:
        self._engine, self._jvm = engine, jvm
        self.changes = self.before = 0
        self.first = self.last = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def next(self, wait: float) -> Batch | None:
        asked = time.perf_counter()
        batch: Batch | None = self._engine.next(wait)
        if batch is not None:
            self.changes += sum(map(len, batch.changes))
            self.before = self.before or (self.changes if self._jvm else 0)
        if not self.first and (batch is not None or not self._jvm):
            self.first = time.perf_counter() if self._jvm else asked
        return batch

    def written(self, position: Any) -> None:
        self._engine.written(position)
        self.last = time.perf_counter()


def catch_up(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    """One side: takes what is there, until it has taken as many changes as there must be; 0: all that is committed now."""
    home, name = directory / "home", wish["name"]
    captures = Captures(home)
    definition = captures.get(name)
    engine = Counted(kind_of(definition.engine).open(definition, captures.storage(name)), definition.engine == "debezium")
    run = CaptureRun(definition, open_log(home), captures.storage(name), engine, lambda progress: enough())

    def enough() -> None:
        if 0 < wish["changes"] <= engine.changes:
            run.stop()

    with Peak() as peak, Meter() as meter:
        run.run(catch_up=not wish["changes"])
    if engine.changes < wish["changes"]:
        raise SystemExit(f"{name}: {engine.changes:,} changes of {wish['changes']:,}")
    return {
        "changes": engine.changes,
        "rate": (engine.changes - engine.before) / max(1e-6, engine.last - engine.first),
        "cpu": meter.cpu,
        "foreign": meter.foreign,
        "peak": peak.bytes,
    }


SIDES: dict[str, Callable[[Path, dict[str, Any]], Any]] = {"catch_up": catch_up}


def taken(home: Path, name: str, changes: int) -> dict[str, Any]:
    found: dict[str, Any] = apart(__file__, "catch_up", home.parent, {"name": name, "changes": changes})
    return found


def line(table: Table, what: str, found: dict[str, Any], ratio: str = "") -> None:
    each = found["cpu"] / found["changes"] * 1e6
    table.add(what, f"{found['changes']:,}", rate(found["rate"]), f"{each:.1f} µs", ratio, percent(found["foreign"]))


def backlogs(server: PostgresServer, home: Path, rows: int) -> Table:
    """Snapshot, large transactions and single changes; Debezium's engine beside ours, where it can be had."""
    out = Table("Into the log", "what", "changes", "changes/s", "CPU a change", "ratio", "foreign")
    server.execute(ORDERS.format("orders"))
    server.execute(FILL.format("orders", rows))
    added(home, server.url, "orders")
    line(out, "snapshot", taken(home, "bench", rows))
    for start in range(0, rows, TRANSACTION):
        server.execute(f"update orders set state = 'paid' where id > {start} and id <= {start + TRANSACTION}")
    ours = taken(home, "bench", rows)
    compared(out, server, home, f"transactions of {TRANSACTION:,} changes", ours, rows // 4, large)
    singles = rows // 4
    server.execute(ORDERS.format("singles"))
    added(home, server.url, "singles", name="singles")
    taken(home, "singles", 0)
    server.execute(SINGLES.format("singles", singles))
    compared(out, server, home, "one change a transaction", taken(home, "singles", singles), singles // 4, single)
    return out


def large(server: PostgresServer, table: str, rows: int) -> None:
    for start in range(0, rows, TRANSACTION):
        last = min(rows, start + TRANSACTION)
        server.execute(f"insert into {table} select i, 1, 1.5, 'new', now() from generate_series({start + 1}, {last}) i")


def single(server: PostgresServer, table: str, rows: int) -> None:
    server.execute(SINGLES.format(table, rows))


def compared(
    out: Table,
    server: PostgresServer,
    home: Path,
    what: str,
    ours: dict[str, Any],
    rows: int,
    fill: Callable[[PostgresServer, str, int], None],
) -> None:
    """Our line, and Debezium's over a part of the changes, as it takes so much longer."""
    line(out, f"{what}: Penstock", ours)
    try:
        theirs = debezium(server, home, f"dbz{len(out.lines)}", rows, fill)
    except NotToBeHad as reason:
        print(f"  without Debezium: {reason}", file=sys.stderr)
        return
    ratio = f"**{ours['rate'] / theirs['rate']:.1f}×**" if theirs["rate"] else "all of it in one batch"
    line(out, f"{what}: Debezium's engine", theirs, ratio)


def debezium(
    server: PostgresServer, home: Path, name: str, rows: int, fill: Callable[[PostgresServer, str, int], None]
) -> dict[str, Any]:
    os.environ["PYTHONPATH"] = str(package())  # of the side's own process; NotToBeHad where it cannot be fetched
    server.execute(ORDERS.format(name))
    added(home, server.url, name, engine="debezium", name=name)
    server.execute(f"insert into {name} values (0, 1, 1.5, 'new')")
    taken(home, name, 1)  # its slot is made with its first start
    fill(server, name, rows)
    return taken(home, name, rows)


@contextmanager
def running(home: Path, *command: str) -> Iterator[psutil.Process]:
    """A command of penstock in a process of its own."""
    started = subprocess.Popen(
        [Path(sys.executable).with_name("penstock"), "--home", str(home), *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield psutil.Process(started.pid)
    finally:
        started.terminate()
        started.wait(PATIENCE)


def until(found: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not found():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {PATIENCE:.0f} s")
        time.sleep(0.001)


def latencies(server: PostgresServer, home: Path, commits: int) -> Table:
    """From before a statement is sent until its change is there; one at a time, with rests between them."""
    import psycopg

    out = Table("From a commit on, one at a time", "until it is", "p50", "p90", "p99", "foreign")
    server.execute(ORDERS.format("live"))
    captures = Captures(home)
    definition = captures.get("bench")
    captures.change(kind_of("postgres").set_up(replace(definition, tables=(*definition.tables, ("public", "live")))))
    log = open_log(home)
    with psycopg.connect(server.url, autocommit=True) as connection:
        numbers = iter(range(1, 10**9))

        def insert() -> int:
            number = next(numbers)
            connection.execute("insert into live values (%s, 1, 1.5, 'new')", (number,))
            return number

        with running(home, "cdc", "run", "bench"):
            until(lambda: "bench.public.live" in log.topics(), "the topic")
            insert()
            topic = log.topic("bench.public.live")
            until(lambda: topic.ends()[0].next > 0, "the first change")
            line_of(out, "in its topic, synced", insert, lambda number: has(log, number), commits)
        (home.parent / "live.py").write_text(_FLOW)
        with running(home, "run", str(home.parent / "live.py"), "--capture", "bench"):
            until(lambda: in_view(home, insert()) is not None, "the view")
            line_of(out, "in a view", insert, lambda number: in_view(home, number, 0) is not None, commits)
    return out


def line_of(out: Table, what: str, insert: Callable[[], int], there: Callable[[int], bool], commits: int) -> None:
    seconds = []
    with Meter() as meter:
        for number in range(commits + commits // 4):
            time.sleep(0.02 + 0.06 * (number * 7919 % 100) / 100)
            started = time.perf_counter()
            made = insert()
            until(lambda made=made: there(made), what)  # type: ignore[misc]
            seconds.append(time.perf_counter() - started)
    seconds = seconds[commits // 4 :]  # the first ones warm up
    out.add(what, *(milliseconds(percentile(seconds, share)) for share in (0.5, 0.9, 0.99)), percent(meter.foreign))


def has(log: Any, number: int) -> bool:
    """Whether the last record of the topic is that of this row."""
    topic = log.topic("bench.public.live")
    end = topic.ends()[0].next
    for chunk in topic.read(0, max(0, end - 1), end):
        return bool(chunk.rows.column(KEY)[-1].as_py() == b'{"id":%d}' % number)
    return False


def in_view(home: Path, number: int, patience: float = 5.0) -> dict[str, Any] | None:
    deadline = time.monotonic() + patience
    while True:
        try:
            with View(home / "views", "live") as view:
                found = view.get(number)
        except NotFound:
            found = None
        if found or time.monotonic() >= deadline:
            return found
        time.sleep(0.005)


def memory(server: PostgresServer, home: Path, sizes: Sequence[int]) -> Table:
    """One transaction, larger than memory should hold: of ten times as many rows it takes no more."""
    out = Table("One large transaction", "rows", "changes/s", "most memory", "before it", "foreign")
    for number, rows in enumerate(sizes):
        name = f"bulk{number}"
        server.execute(ORDERS.format(name))
        definition = added(home, server.url, name, name=name)
        server.execute(f"insert into {name} values (0, 1, 1.5, 'new')")
        small = taken(home, name, 0)  # the copy of the table is done then
        server.execute(f"insert into {name} select i, 1, 1.5, 'new', now() from generate_series(1, {rows}) i")
        found = taken(home, name, rows)
        kind_of("postgres").tear_down(definition)  # the server need not keep its log for it
        peaks = (f"{each['peak'] / 2**20:.0f} MiB" for each in (found, small))
        out.add(f"{rows:,}", rate(found["rate"]), *peaks, percent(found["foreign"]))
    return out


def overhead(server: PostgresServer, home: Path, rows: int, repeat: int) -> Table:
    """What the source pays: the same statements on tables that are followed in different ways, in turns."""
    out = Table("The same statements on the source", "table", "single rows/s", "rows/s in bulk", "single", "bulk")
    ways = ("not followed", "write-ahead log, capture running", "triggers")
    tables = dict(zip(ways, ("alone", "logged", "triggered"), strict=True))
    for table in tables.values():
        server.execute(ORDERS.format(table))
    added(home, server.url, "logged", name="logged")
    added(home, server.url, "triggered", engine="triggers", name="triggered")
    found: dict[str, dict[str, list[float]]] = {way: {"single": [], "bulk": []} for way in ways}
    with running(home, "cdc", "run", "logged"), running(home, "cdc", "run", "triggered"):
        for number in range(repeat + 1):  # the first round warms up
            for way, table in tables.items():
                first = number * 20 * rows
                single_rate, bulk_rate = (
                    _timed(server, table, first, rows, 1),
                    _timed(server, table, first + rows, 10 * rows, 10 * rows),
                )
                if number:
                    found[way]["single"].append(single_rate)
                    found[way]["bulk"].append(bulk_rate)
    base = {kind: median(found[ways[0]][kind]) for kind in ("single", "bulk")}
    for way in ways:
        single_rows, bulk_rows = median(found[way]["single"]), median(found[way]["bulk"])
        shares = percent(single_rows / base["single"]), percent(bulk_rows / base["bulk"])
        out.add(way, rate(single_rows), rate(bulk_rows), *shares)
    return out


def _timed(server: PostgresServer, table: str, first: int, rows: int, each: int) -> float:
    """Rows a second, in statements of so many."""
    loop = (
        f"do $$ begin for i in 0..{rows // each - 1} loop insert into {table} "
        f"select {first} + i * {each} + j, 1, 1.5, 'new', now() from generate_series(1, {each}) j; commit; end loop; end $$"
    )
    started = time.perf_counter()
    server.execute(loop)
    return rows / (time.perf_counter() - started)


def main() -> None:
    parser = options(__doc__ or "", 400_000, 8_000)
    parser.add_argument("--bulk", type=int, help="rows of the large transaction; default 25 times --rows")
    given = parsed(parser)
    bulk = given.bulk or 25 * given.rows
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        place = Path(name)
        home = place / "home"
        make_private(home)
        with PostgresServer(place / "server", max_wal_size="4GB", synchronous_commit="on") as server:
            tables = [
                backlogs(server, home, given.rows),
                latencies(server, home, 20 if given.quick else 300),
                memory(server, home, (bulk // 10, bulk)),
                overhead(server, home, max(500, given.rows // 100), given.repeat),
            ]
    publish("cdc", tables, given.markdown)


if __name__ == "__main__":
    run_side(SIDES) if is_side() else main()
