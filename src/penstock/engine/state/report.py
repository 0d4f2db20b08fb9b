"""What a flow keeps: how much per step and table, the rows themselves, and where in which file each run lies.

Reads what the last decision names, from outside: no Spark, no flow's program, and a flow may be running meanwhile."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import filled
from penstock.core.columns import HASH, POSITION, TIME
from penstock.core.hashing import bucket_of, hash64
from penstock.core.position import position_text
from penstock.core.schema import TIMESTAMP, type_text
from penstock.core.time import text
from penstock.engine.diagnose.inspect import kernel_of_step
from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.engine.state.refs import RunRef
from penstock.engine.state.runs import batch_rows, file_size, read_run
from penstock.errors import BadInput, NotFound
from penstock.kernels.columns import column, numbers, plain
from penstock.kernels.port import Kernel
from penstock.storage.port import Storage

_OWN_BITS = np.uint64(40)  # below these a run's HASH may say something else than the hash of the key: joins put the time there
_OTHER_BITS = np.uint64((1 << 40) - 1)


@dataclass(frozen=True)
class Holding:
    """One table of one step."""

    flow: str
    step: str
    what: str | None  # the kind of step; None where the flow was last started by a version that did not say
    key: tuple[str, ...]
    table: str
    rows: int
    files: int
    bytes: int  # of these files: runs in them that are over count until the last of a file is
    runs: tuple[int, ...]  # by level; eight of one are merged into one of the next
    buckets: int  # that hold rows of it
    oldest: str | None  # the begin of the oldest slot; None where the table is not kept by time


class Run(NamedTuple):
    """Where a run lies: rows `first` to `first + rows` of an Arrow file, which are its batch number `batch`."""

    step: str
    table: str
    bucket: int
    slot: int
    level: int
    file: str
    batch: int
    first: int
    rows: int


class Kept(NamedTuple):
    rows: pa.Table
    more: bool  # whether there are others, beyond the limit
    together: bool  # runs were brought together: a key stands there once, as the step sees it


def decided(decisions: Decisions) -> Decision:
    """The last decision; NotFound where there is none."""
    last = decisions.last()
    if last is None:
        raise NotFound(f"flow {decisions.flow} has decided nothing yet", hint="run it first: penstock run FLOW.py --catch-up")
    return last


def holdings(decisions: Decisions, step: str | None = None) -> list[Holding]:
    """Every table that has rows, by step."""
    known: Mapping[str, Any] = decisions.owner().get("holders", {})
    tables: dict[tuple[str, str], list[RunRef]] = defaultdict(list)
    last = decided(decisions)
    for ref in last.state:
        tables[ref.step, ref.table].append(ref)
    if step is not None and step not in known and all(s != step for s, _ in tables):
        _no_step(decisions.flow, step, sorted({*known, *(s for s, _ in tables)}))
    return [
        _holding(decisions, place, refs, known.get(place[0], {}))
        for place, refs in sorted(tables.items())
        if step in (None, place[0])
    ]


def _holding(decisions: Decisions, place: tuple[str, str], refs: Sequence[RunRef], known: Mapping[str, Any]) -> Holding:
    files = {ref.file for ref in refs}
    levels = Counter(ref.level for ref in refs)
    slots = {ref.slot for ref in refs}
    return Holding(
        flow=decisions.flow,
        step=place[0],
        what=known.get("what"),
        key=tuple(next(iter(known.get("keys", ())), ())),
        table=place[1],
        rows=sum(ref.rows for ref in refs),
        files=len(files),
        bytes=sum(file_size(decisions.storage, file) for file in files),
        runs=tuple(levels[level] for level in range(max(levels) + 1)),
        buckets=len({ref.bucket for ref in refs}),
        oldest=text(min(slots)) if slots != {0} else None,
    )


def runs(decisions: Decisions, step: str, table: str | None = None) -> list[Run]:
    """The runs of a step (of one of its tables), oldest first; every file is checked against its checksum."""
    refs = _refs(decisions, step, table)
    return [Run(r.step, r.table, r.bucket, r.slot, r.level, r.file, r.batch, _first(decisions.storage, r), r.rows) for r in refs]


def _first(storage: Storage, ref: RunRef) -> int:
    return sum(batch_rows(storage, ref.file, batch) for batch in range(ref.batch))


def rows_kept(decisions: Decisions, step: str, table: str, key: Mapping[str, str], limit: int) -> Kept:
    """The rows of a table, newest first. With a key only its bucket is opened, and only the range of its hash is looked at."""
    refs = _refs(decisions, step, table)
    known = decisions.owner().get("holders", {}).get(step, {})
    example = read_run(decisions.storage, refs[0])
    sought = _Sought.of(example, key, [*known.get("keys", ()), list(key)], table)
    last, kernel = decided(decisions), kernel_of_step(decisions, step)
    only = None if step in last.sources else sought.bucket(last.buckets)  # a source keeps its state by partition
    timed = {ref.slot for ref in refs} != {0}
    found, there = [_readable(example.slice(0, 0), 0, timed)], 0
    for slot, pieces in _by_slot(decisions.storage, refs, sought, only):
        rows = _newest_first(pa.concat_tables(_merged(kernel, table, runs) for runs in pieces))
        found.append(_readable(rows, slot, timed))
        there += rows.num_rows
        if there > limit:
            break
    return Kept(pa.concat_tables(found).slice(0, limit), there > limit, kernel is not None)


def _by_slot(
    storage: Storage, refs: Sequence[RunRef], sought: "_Sought", only: int | None
) -> Iterator[tuple[int, list[list[pa.Table]]]]:
    """Slot after slot, the newest first: of each bucket (or one only) its runs, oldest first, cut to what is sought."""
    slots: dict[int, dict[int, list[RunRef]]] = defaultdict(lambda: defaultdict(list))
    for ref in refs:
        slots[ref.slot][ref.bucket].append(ref)
    for slot in sorted(slots, reverse=True):
        wanted = [refs for bucket, refs in slots[slot].items() if only in (None, bucket)]
        pieces = [[sought.cut(read_run(storage, ref)) for ref in refs] for refs in wanted]
        if any(run.num_rows for runs in pieces for run in runs):
            yield slot, pieces


def _merged(kernel: Kernel | None, table: str, runs: Sequence[pa.Table]) -> pa.Table:
    some = [run for run in runs if run.num_rows] or runs[:1]
    return kernel.merge(table, some) if kernel and len(some) > 1 else pa.concat_tables(some)


@dataclass(frozen=True)
class _Sought:
    """The rows that are asked for: all, or those of a key."""

    values: Mapping[str, pa.Scalar]
    hash: np.uint64 | None = None  # of the whole key

    @classmethod
    def of(cls, example: pa.Table, key: Mapping[str, str], keys: Sequence[Sequence[str]], table: str) -> "_Sought":
        """keys: columns by whose hash, in this order, the table may be sorted. A run of it shows whether it is."""
        values = {name: _value(example.schema, name, word, table) for name, word in key.items()}
        for names in keys:
            if names and set(names) == set(values) and _sorted_by(example, names):
                return cls(values, hash64([pa.array([values[n].as_py()], values[n].type) for n in names], 1)[0])
        return cls(values)

    def bucket(self, buckets: int) -> int | None:
        """The only bucket that can have it; None where any can."""
        return None if self.hash is None else int(bucket_of(np.array([self.hash]), buckets)[0])

    def cut(self, run: pa.Table) -> pa.Table:
        """The rows of a run that are sought."""
        if self.hash is not None and run.num_rows:
            run = self._range(run)
        if not self.values or not run.num_rows:
            return run
        masks = [_is(column(run, name), value) for name, value in self.values.items()]
        mask = masks[0]
        for other in masks[1:]:
            mask = pc.and_(mask, other)
        return run.filter(mask)

    def _range(self, run: pa.Table) -> pa.Table:
        """Rows whose HASH begins like that of the key."""
        assert self.hash is not None
        low = self.hash >> _OWN_BITS << _OWN_BITS
        hashes = numbers(run, HASH)
        start, stop = np.searchsorted(hashes, low, "left"), np.searchsorted(hashes, low | _OTHER_BITS, "right")
        return run.slice(int(start), int(stop - start))


def _sorted_by(run: pa.Table, names: Sequence[str]) -> bool:
    first = run.slice(0, 1)
    return bool((hash64([first[n] for n in names], 1) >> _OWN_BITS == numbers(first, HASH) >> _OWN_BITS).all())


def _value(schema: pa.Schema, name: str, word: str, table: str) -> pa.Scalar:
    if name not in schema.names:
        there = ", ".join(n for n in schema.names if not n.startswith("__")) or "none"
        raise BadInput(f"table {table} keeps no column {name!r}", f"its columns: {there}")
    kind = schema.field(name).type
    try:
        absent = word == "null" and not pa.types.is_string(kind)
        found: pa.Scalar = pa.scalar(None, kind) if absent else plain(pa.array([word]).cast(kind))[0]
        return found
    except pa.ArrowInvalid:
        raise BadInput(f"cannot read {word!r} as {type_text(kind)}, which is what {name!r} is in table {table}") from None


def _is(values: pa.Array, value: pa.Scalar) -> pa.Array:
    if not value.is_valid:
        return values.is_null()
    if pa.types.is_floating(values.type) and value.as_py() != value.as_py():
        return filled(pc.is_nan(values), False)
    return filled(pc.equal(plain(values), value), False)


def _newest_first(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(TIME, "descending")]) if TIME in rows.column_names else rows


def _readable(rows: pa.Table, slot: int, timed: bool) -> pa.Table:
    """For people: times as times, positions as text, no hashes; and the slot, where rows are kept by time."""
    columns: dict[str, Any] = {}
    if timed:
        columns["slot"] = pa.array([slot] * rows.num_rows, pa.int64()).cast(TIMESTAMP)
    for name in rows.column_names:
        if name == TIME:
            columns["time"] = rows.column(name).cast(TIMESTAMP)
        elif name == POSITION:
            columns["position"] = pa.array([p and position_text(p) for p in rows.column(name).to_pylist()], pa.string())
        elif name != HASH:
            columns[name] = rows.column(name)
    return pa.table(columns)


def _refs(decisions: Decisions, step: str, table: str | None) -> list[RunRef]:
    last = decided(decisions)
    refs = [ref for ref in last.state if ref.step == step]
    known = decisions.owner().get("holders", {})
    if not refs and step not in known:
        _no_step(decisions.flow, step, sorted({*known, *(r.step for r in last.state)}))
    found = [ref for ref in refs if table in (None, ref.table)]
    if not found and table is not None:
        tables = ", ".join(sorted({ref.table for ref in refs})) or "none: it keeps nothing now"
        raise NotFound(f"step {step!r} of flow {decisions.flow} has no table {table!r} with rows in it", f"its tables: {tables}")
    return found


def _no_step(flow: str, step: str, known: Sequence[str]) -> NoReturn:
    raise NotFound(f"flow {flow} has no step {step!r} with state", f"its steps with state: {', '.join(known) or 'none'}")
