"""Views with the checksums of their rows, and with these taken out: new rows, rows that replace others, reads of all and of one."""

import contextlib
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from events import START
from measuring import Meter, median
from report import Table, options, parsed, percent, publish

from penstock import Schema
from penstock.core.columns import POSITION, TIME
from penstock.core.time import NEVER
from penstock.sinks import view_rows
from penstock.sinks.port import Delivery, Marker, SinkSpec
from penstock.sinks.view import ViewSink
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import ipc_file
from penstock.views.view import View

_LOOKS = 300  # keys that are asked for, one by one
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_WORK = ("new rows", "rows that replace others", "read all rows", "read one row")


@dataclass(frozen=True)
class Shape:
    """A kind of view; rows makes so many of them, with values that depend on the epoch."""

    name: str
    schema: str
    key: tuple[str, ...]
    unique: bool
    rows: Callable[[int, int], pa.Table]


def windows(count: int, epoch: int) -> pa.Table:
    number = np.arange(count)
    start = START + number // 1_000 * 60_000_000
    columns = {
        "k": number % 1_000,
        "window_start": pa.array(start, _TIMESTAMP),
        "window_end": pa.array(start + 60_000_000, _TIMESTAMP),
        "n": number * 7919 % 1_009 + epoch,
        "total": np.random.default_rng(epoch).random(count),
        "revision": np.full(count, epoch),
    }
    return pa.table(columns | {TIME: start + 59_999_999, POSITION: positions(count)})


def people(count: int, epoch: int) -> pa.Table:
    number = np.arange(count)
    columns = {
        "user": [f"user-{i}" for i in number],
        "name": [f"Name of {i * 7919 % 100_003}" for i in number],
        "country": [("DE", "FR", "IT")[i % 3] for i in number],
        "amount": pa.array(number * 37 % 1_000_000 + epoch).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 2), safe=False),
        "at": pa.array(START + number + epoch, _TIMESTAMP),
        "ok": number % 2 == 0,
        "x": np.random.default_rng(epoch).random(count),
    }
    return pa.table(columns | {TIME: START + number + epoch, POSITION: positions(count)})


def positions(count: int) -> pa.Array:
    return pa.array([b"%016d" % i for i in range(count)], pa.binary())


SHAPES = (
    Shape(
        "windows: 6 numbers and times",
        "k long, window_start timestamp, window_end timestamp, n long, total double, revision long",
        ("k", "window_start"),
        True,
        windows,
    ),
    Shape(
        "people: 3 texts, a decimal, 3 others",
        "user string, name string, country string, amount decimal(12,2), at timestamp, ok boolean, x double",
        ("user",),
        False,
        people,
    ),
)


@contextlib.contextmanager
def without_checks() -> Iterator[None]:
    """Rows are written without computing anything over them."""
    checks, stored = view_rows.row_checks, view_rows.stored
    view_rows.row_checks = lambda layout, columns, since: np.zeros(len(since), np.int64)
    view_rows.stored = lambda column, values, key=False: column
    try:
        yield
    finally:
        view_rows.row_checks, view_rows.stored = checks, stored


def unchecked(path: Path) -> None:
    """The file as a version without checksums wrote it: nothing is verified, and less is read."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for table, column in (("current", "__crc"), ("history", "__crc"), ("marker", "__crc"), ("marker", "sums")):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("DELETE FROM meta WHERE name IN ('tables', 'checksum')")
        connection.execute("PRAGMA user_version = 1")


def measured(shape: Shape, count: int, checked: bool) -> dict[str, float]:
    """Processor seconds a row, by what was done; the rows read are those that were written."""
    storage, seconds = MemoryStorage(), {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        path = Path(name) / "v.db"
        sink = ViewSink(SinkSpec("bench", "v", Schema.of(shape.schema), shape.key, unique=shape.unique), path, storage)
        sink.open("life", 1)
        with contextlib.nullcontext() if checked else without_checks():
            for epoch, what in enumerate(_WORK[:2]):
                rows = shape.rows(count, epoch)
                storage.publish(str(epoch), ipc_file(rows))
                delivery = Delivery(Marker("life", 1, epoch), [str(epoch)], NEVER, {}, epoch)
                seconds[what] = _timed(sink.deliver, delivery) / count
        sink.close()
        if not checked:
            unchecked(path)
        with View(Path(name), "v") as view:
            seconds["read all rows"] = median(_timed(view.rows) for _ in range(3)) / count
            keys = rows.select(shape.key).slice(0, _LOOKS).to_pylist()
            seconds["read one row"] = _timed(lambda: [view.get(*key.values()) for key in keys]) / _LOOKS
            same = view.rows().sort_by([(n, "ascending") for n in shape.key])
        if not same.equals(rows.select(same.column_names).cast(same.schema).sort_by([(n, "ascending") for n in shape.key])):
            raise SystemExit("what was read is not what was written")
    return seconds


def _timed(work: Callable[..., object], *given: object) -> float:
    start = time.process_time()
    work(*given)
    return time.process_time() - start


def main() -> None:
    given = parsed(options(__doc__, 200_000, 5_000), repeat=7)
    out = Table("Processor time a row, in microseconds", "view", "what", "without checksums", "with them", "more", "foreign")
    for shape in SHAPES:
        measured(shape, given.rows // 10, True)  # warms up
        with Meter() as meter:  # in turns, so that others on the machine disturb both alike
            rounds = [(measured(shape, given.rows, False), measured(shape, given.rows, True)) for _ in range(given.repeat)]
        for what in _WORK:
            plain, checked = (median(r[side][what] for r in rounds) for side in (0, 1))
            more = median(r[1][what] / r[0][what] for r in rounds) - 1
            cells = f"{plain * 1e6:.2f}", f"{checked * 1e6:.2f}", f"**{more * 100:+.0f} %**"
            out.add(shape.name, what, *cells, percent(meter.foreign))
    publish("views", [out], given.markdown)


if __name__ == "__main__":
    main()
