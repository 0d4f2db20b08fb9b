"""3. Run, inside one task: rows are pushed from step to step until they must travel, wait or leave.

Rows leave a task in four ways: as blocks for the bucket of a keyed step, as staged files for a sink, as files for Spark SQL or the
next segment, and as counts. Everything is collected here and written at the end under unique names.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.change import ADDRESS, HASH, OP, POSITION, TIME, WATERMARK
from penstock.core.hashing import bucket_of
from penstock.core.position import Position
from penstock.core.schema import TIMESTAMP
from penstock.core.time import NEVER
from penstock.engine.execute.failing import (
    Failure,
    Sample,
    dead_letters,
    isolated,
    new_ones,
    put_in,
    sample,
    shortened,
    stopped,
    without,
)
from penstock.engine.execute.program import DEAD, LATE, Program, dead_schema, late_schema, result_step
from penstock.engine.execute.rowwise import SYSTEM, RowStep, addable, row_step
from penstock.engine.execute.staging import Pile
from penstock.engine.run.decision import RunRef, StagedRef
from penstock.engine.source.clocks import DeviceClocks
from penstock.engine.source.read import PIECE, Dead, Range, addresses, late_positioned, positioned, read
from penstock.engine.source.spec import topic_of
from penstock.engine.state.runs import CARRIED, Merging, StateWriter, apply_changes, load_state, read_run
from penstock.errors import BadFlow, BadRow, FailedRow, PenstockError
from penstock.kernels.aggregates.unanswered import FAILED
from penstock.kernels.port import Changes, Fates, Stepped, keeps_order, position_needed
from penstock.log.intake.codec import encode_json
from penstock.log.port import Log
from penstock.plan import Step
from penstock.storage.port import Storage

Blocks = dict[tuple[str, int], list[pa.Table]]  # (keyed step, port) -> rows with HASH
Refs = Mapping[tuple[str, int], list[RunRef]]  # (step, bucket) -> its runs of state


@dataclass
class Result:
    """What a task tells the driver: names and counts, never rows."""

    staged: list[StagedRef] = field(default_factory=list)
    carried: list[tuple[str, str, int]] = field(default_factory=list)  # reader, file, rows: for Spark SQL and the next segment
    runs: list[RunRef] = field(default_factory=list)  # the whole state of the buckets that were touched
    touched: list[tuple[str, int]] = field(default_factory=list)  # (step, bucket)
    fates: dict[str, Fates] = field(default_factory=lambda: defaultdict(Counter))
    times: dict[tuple[str, int], int] = field(default_factory=dict)  # (source, partition) -> greatest plausible time
    marks: dict[tuple[str, int], int] = field(default_factory=dict)  # and greatest mark read, where headers cannot say
    accounts: dict[str, Fates] = field(default_factory=lambda: defaultdict(Counter))  # source -> what its offsets held
    answered: dict[str, int] = field(default_factory=dict)  # step -> the newest time that it has answered, + 1
    samples: dict[str, Sample] = field(default_factory=dict)  # step -> one of the rows on which it failed
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: "Result") -> None:
        self.staged += other.staged
        self.carried += other.carried
        self.runs += other.runs
        self.touched += other.touched
        for step, fates in other.fates.items():
            self.fates[step].update(fates)
        for source, account in other.accounts.items():
            self.accounts[source].update(account)
        for place, time in other.times.items():
            self.times[place] = max(time, self.times.get(place, NEVER))
        for place, mark in other.marks.items():
            self.marks[place] = max(mark, self.marks.get(place, NEVER))
        for step, time in other.answered.items():
            self.answered[step] = max(time, self.answered.get(step, NEVER))
        self.samples = other.samples | self.samples
        for what, seconds in other.seconds.items():
            self.seconds[what] += seconds


class Work:
    """One task at one level: pushes rows and collects what comes of them."""

    def __init__(self, program: Program, storage: Storage, epoch: int, clock: tuple[int, int] = (0, 0)) -> None:
        self.program, self.storage, self.epoch, self.clock = program, storage, epoch, clock
        self.blocks: Blocks = defaultdict(list)
        self.staged: dict[str, Pile] = defaultdict(Pile)
        self.carried: dict[str, Pile] = defaultdict(Pile)
        self.writer = StateWriter(storage, epoch)
        self.result = Result()
        self.row_steps: dict[str, RowStep] = {}

    def read(self, log: Log, spans: Iterable[Range], refs: Refs) -> None:
        """Reads ranges of sources and pushes their rows, many at a time: every push has its price. refs: the runs of state."""
        for step, ranges in groupby(sorted(spans), key=attrgetter("step")):
            topic, held = self.program.sources[step].topic, list[pa.Table]()
            for span in ranges:
                for rows in self._pieces(log, span, refs.get((step, span.partition), [])):
                    held.append(rows)
                    if sum(r.num_rows for r in held) >= PIECE:
                        self.push(step, _together(held), topic)
                        held = []
            if held:
                self.push(step, _together(held), topic)

    def _pieces(self, log: Log, span: Range, refs: list[RunRef]) -> Iterator[pa.Table]:
        spec = self.program.sources[span.step]
        clocks = DeviceClocks(spec.clock, [read_run(self.storage, ref) for ref in refs]) if spec.clock else None
        for piece in read(topic_of(spec, log), spec, span, clocks):
            self.result.fates[span.step].update(piece.fates)
            self.result.accounts[span.step].update(piece.account)
            self.result.times[span.step, span.partition] = piece.time
            self.result.marks[span.step, span.partition] = piece.mark
            if piece.dead:
                self.staged[DEAD].append(_letters(span, spec.topic, piece.dead))
            if piece.rows is not None:
                yield piece.rows
        if clocks:
            self._keep(clocks, span.step, span.partition, refs, clocks.changes())

    def _keep(self, merging: Merging, step: str, bucket: int, refs: list[RunRef], changes: Changes) -> None:
        self.result.runs += apply_changes(merging, self.storage, self.writer, refs, bucket, step, changes)
        self.result.touched.append((step, bucket))

    def push(self, step: str, rows: pa.Table, topic: str | None = None) -> None:
        """Gives the rows of a step to everybody who reads it; topic: where rows without a position come from."""
        place = self.program.places[step]
        for reader in self.program.readers[step]:
            if reader.kind == "output":
                self.staged[reader.name].append(self._leaving(step, reader.name, positioned(rows, topic)))
            elif reader.kind == "late":
                continue  # fed where its step judges
            elif reader.kind == "sql" or self.program.places[reader.name].segment > place.segment:
                self.carried[f"{reader.name}:{reader.port}"].append(self._carried(step, positioned(rows, topic)))
            elif reader.kind == "keyed":
                self.prepare(reader.name, reader.port, rows, topic)
            else:
                self.push(reader.name, self._rowwise(self.program.plan.step(reader.name), reader.port, rows, topic), topic)

    def prepare(self, step: str, port: int, rows: pa.Table, topic: str | None) -> None:
        """The half of a keyed step that needs no state."""
        kernel, fates = self.program.kernels[step], self.result.fates[step]
        needed = position_needed(kernel, port)
        if needed == "late":
            rows = late_positioned(rows, topic)
        elif needed:
            rows = positioned(rows, topic)
        if step not in self.program.ordered and ADDRESS in rows.column_names and keeps_order(kernel):
            rows = rows.drop_columns([ADDRESS])
        fates["in"] += rows.num_rows
        if step in self.program.own and rows.num_rows:
            rows = self._addable(step, rows, topic)
        with self._named(step):
            prepared = kernel.prepare(port, rows)
        fates.update(prepared.fates)
        if prepared.rows.num_rows:
            self.blocks[step, port].append(prepared.rows)
        if prepared.late is not None and prepared.late.num_rows:
            self._late(step, port, positioned(prepared.late, topic))

    def _addable(self, step: str, rows: pa.Table, topic: str | None) -> pa.Table:
        """The rows that the user's own aggregates can take, each by itself. This is found out here, before a row is judged, for
        where rows are added up, and with which others, is chance."""
        failures: dict[int, Failure] = {}
        for own in self.program.own[step]:
            for i, cause in isolated(partial(addable, own), rows)[1]:
                failures.setdefault(i, Failure(i, own.called, cause))
        found = [failures[i] for i in sorted(failures)]
        self.fail(self.program.plan.step(step), rows, found, topic)
        return without(rows, found) if found else rows

    def _late(self, step: str, port: int, rows: pa.Table) -> None:
        if step in self.program.late_sink:
            self.staged[LATE].append(_late_letters(step, rows))
        for reader in self.program.readers[step]:
            if reader.kind == "late" and reader.port == port:
                late = self.program.plan.step(reader.name)
                self.result.fates[reader.name].update({"in": rows.num_rows, "passed": rows.num_rows})
                order = [ADDRESS] if reader.name in self.program.ordered else []
                self.push(reader.name, rows.select([*late.schema.names, TIME, WATERMARK, POSITION, *order]))

    def _rowwise(self, step: Step, port: int, rows: pa.Table, topic: str | None) -> pa.Table:
        runs = self._row_step(step)
        applied = runs.apply(positioned(rows, topic) if runs.positioned else rows, port)
        self.result.fates[step.name].update(applied.fates)
        self.fail(step, rows, applied.failures, topic)
        return applied.rows

    def _row_step(self, step: Step) -> RowStep:
        if step.name not in self.row_steps:
            made = row_step(step, step.name in self.program.ordered)
            if made is None:
                raise BadFlow(f'step "{step.name}" cannot run here')
            self.row_steps[step.name] = made
        return self.row_steps[step.name]

    def fail(self, step: Step, rows: pa.Table, failures: list[Failure], topic: str | None = None) -> None:
        """Rows on which a step failed go to the dead letters, or stop the flow."""
        if not failures:
            return
        new = new_ones(rows, failures)
        failed = positioned(rows.take([f.row for f in new]), topic)
        if new:
            self.result.samples.setdefault(step.name, sample(failed.slice(0, 1), new[0]))
            if step.on_error == "stop":
                raise stopped(self.program.plan.flow, step, self.result.samples[step.name])
            self.staged[DEAD].append(dead_letters(step.name, failed, new))
        self.result.fates[step.name].update(+Counter({"dead": len(new), "withdrawn": len(failures) - len(new)}))

    def _leaving(self, step: str, sink: str, rows: pa.Table) -> pa.Table:
        made, definition = self.program.plan.step(step), self.program.plan.output(sink).definition
        order = [ADDRESS] if step in self.program.ordered and definition.ordered else []
        return definition.prepare(
            rows.select([*made.schema.names, TIME, WATERMARK, POSITION, *([OP] if made.updating else []), *order])
        )

    def _carried(self, step: str, rows: pa.Table) -> pa.Table:
        return rows if step in self.program.ordered or ADDRESS not in rows.column_names else rows.drop_columns([ADDRESS])

    def step(
        self,
        step: str,
        bucket: int,
        blocks: Blocks,
        refs: list[RunRef],
        before: tuple[int, ...],
        now: list[int],
        answered: int = NEVER,
    ) -> None:
        """The half of a keyed step that has state: one bucket of it."""
        kernel = self.program.kernels[step]
        ports = [blocks.get((step, port)) for port in range(len(now))]
        rows = [pa.concat_tables(b, promote_options="none") if b else None for b in ports]
        state = load_state(self.storage, refs, before, self.clock, answered)
        with self._named(step):
            stepped = kernel.step(state, rows, now)
            self._keep(kernel, step, bucket, refs, stepped.changes)
        self._tell_results(step, stepped)
        self.result.fates[step].update(stepped.fates)
        if stepped.answered > NEVER:
            self.result.answered[step] = max(stepped.answered, self.result.answered.get(step, NEVER))
        for out in chain([stepped.rows], stepped.more):
            if out.num_rows:
                self.push(step, out)

    @contextmanager
    def _named(self, step: str) -> Iterator[None]:
        """Errors of a user's own aggregate name the step."""
        try:
            yield
        except BadRow as error:
            where = self.program.plan.step(step)
            place = f'flow {self.program.plan.flow}, step "{step}" ({where.origin})'
            raise FailedRow(f'step "{step}" fails: {error.what}', place, *error.detail, hint=error.hint) from error

    def _tell_results(self, step: str, stepped: Stepped) -> None:
        """Results that the user's own aggregates give, and those that they fail to give, are counted apart from the rows."""
        if step not in self.program.results:
            return
        given = int(pc.sum(put_in(stepped.rows)).as_py() or 0)
        failed = 0 if stepped.failed is None else stepped.failed.num_rows
        told = replace(self.program.plan.step(step), name=result_step(step))
        self.result.fates[told.name].update(+Counter({"in": given + failed, "passed": given}))
        if stepped.failed is not None:
            causes = enumerate(stepped.failed.column(FAILED).to_pylist())
            self.fail(told, stepped.failed, [Failure(i, cause["expression"], cause["cause"]) for i, cause in causes])

    def finish(self) -> Result:
        """Writes everything that leaves this task, synced, under names of its own; where that fails nothing of it stays."""
        try:
            return self._written()
        except PenstockError:
            with suppress(PenstockError):
                for path in [*self.writer.paths, *(s.file for s in self.result.staged), *(c[1] for c in self.result.carried)]:
                    self.storage.remove(path, durable=False)
            raise

    def _written(self) -> Result:
        self.result.runs += self.writer.write()
        for sink, pile in self.staged.items():
            if pile.rows:
                path, size = pile.write(self.storage, f"staged/{self.epoch}-{sink}")
                self.result.staged.append(StagedRef(sink, path, pile.rows, size))
        for reader, pile in self.carried.items():
            path, _ = pile.write(self.storage, f"staged/{self.epoch}", CARRIED)
            self.result.carried.append((reader, path, pile.rows))
        return self.result


def _together(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="none")


def split(blocks: Blocks, buckets: int) -> dict[int, Blocks]:
    """Blocks by the bucket of their hash."""
    out: dict[int, Blocks] = defaultdict(lambda: defaultdict(list))
    for place, tables in blocks.items():
        for table in tables:
            where = bucket_of(table.column(HASH).to_numpy(), buckets)
            if buckets == 1 or (where == where[0]).all():
                out[int(where[0])][place].append(table)
                continue
            order = np.argsort(where, kind="stable")
            ends = np.searchsorted(where[order], np.arange(buckets + 1))
            ordered = table.take(order)
            for bucket in range(buckets):
                if ends[bucket] < ends[bucket + 1]:
                    out[bucket][place].append(ordered.slice(ends[bucket], ends[bucket + 1] - ends[bucket]))
    return out


def _letters(span: Range, topic: str, dead: list[Dead]) -> pa.Table:
    """Rows of the flow's dead topic: what could not be read, why, and where it is."""
    n = len(dead)
    where = [Position(topic, span.partition, d.offset) for d in dead]
    columns = [
        [span.step] * n,
        [shortened(d.reason) for d in dead],
        *([getattr(w, a) for w in where] for a in ("topic", "partition", "offset")),
    ]
    columns += [[None] * n, [None] * n, [shortened(d.value.decode("utf-8", "backslashreplace")) for d in dead], [None] * n]
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, dead_schema(), strict=True)], schema=dead_schema().arrow)
    order = addresses(span.partition, np.array([d.offset for d in dead], np.int64))
    return _system(table, [d.appended for d in dead], [w.encode() for w in where], order)


def _late_letters(step: str, rows: pa.Table) -> pa.Table:
    """Rows of the flow's own late topic."""
    n = rows.num_rows
    raw = rows.column(POSITION).to_pylist()
    where = [Position.decode(p) for p in raw]
    watermark = [None if w <= NEVER else w for w in rows.column(WATERMARK).to_pylist()]
    user = rows.select([c for c in rows.column_names if c not in SYSTEM])
    columns = [[step] * n, ["late"] * n, *([getattr(w, a, None) for w in where] for a in ("topic", "partition", "offset"))]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, late_schema(), strict=False)]
    arrays += [rows.column(TIME).cast(TIMESTAMP).combine_chunks(), pa.array(watermark, pa.int64()).cast(TIMESTAMP)]
    arrays.append(pa.array([j.decode() for j in encode_json(user)], pa.string()))
    order = rows.column(ADDRESS) if ADDRESS in rows.column_names else pa.nulls(n, pa.int64())
    return _system(pa.table(arrays, schema=late_schema().arrow), rows.column(TIME).to_pylist(), raw, order)


def _system(table: pa.Table, times: list[int], positions: list[bytes], order: pa.Array | pa.ChunkedArray) -> pa.Table:
    n = table.num_rows
    table = table.append_column(TIME, pa.array(times, pa.int64()))
    table = table.append_column(WATERMARK, pa.array([NEVER] * n, pa.int64()))
    return table.append_column(POSITION, pa.array(positions, pa.binary())).append_column(ADDRESS, order)
