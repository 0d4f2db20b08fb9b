"""3. Run, inside one task: rows are pushed from step to step until they must travel, wait or leave.

Rows leave a task in four ways: as blocks for the bucket of a keyed step, as staged files for a sink, as files for Spark SQL or the
next segment, and as counts. Everything is collected here and written at the end under unique names.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import values_in
from penstock.core.columns import ADDRESS, FAILED, HASH, OP, POSITION, TIME, WATERMARK
from penstock.core.hashing import bucket_of
from penstock.core.time import NEVER
from penstock.engine.execute import letters
from penstock.engine.execute.failing import (
    Failure,
    dead_letters,
    isolated,
    new_ones,
    put_in,
    sample,
    stopped,
    without,
)
from penstock.engine.execute.job import Carried, Job, Result
from penstock.engine.execute.program import DEAD, LATE, result_step
from penstock.engine.execute.rowwise import RowStep, addable, row_step
from penstock.engine.execute.staging import Pile
from penstock.engine.source.clocks import DeviceClocks
from penstock.engine.source.read import PIECE, Range, late_positioned, positioned, read
from penstock.engine.source.spec import topic_of
from penstock.engine.state.refs import RunRef, StagedRef
from penstock.engine.state.runs import CARRIED, Merging, StateWriter, apply_changes, load_state, read_arrow, read_run
from penstock.errors import BadFlow, BadRow, FailedRow, PenstockError
from penstock.kernels.port import Changes, Stepped, crossed, keeps_order, position_needed
from penstock.plan import Step

Blocks = dict[tuple[str, int], list[pa.Table]]  # (keyed step, port) -> rows with HASH


class Task:
    """One task at one level: pushes rows and collects what comes of them."""

    def __init__(self, job: Job) -> None:
        self.job, self.program, self.storage = job, job.program, job.storage
        self.blocks: Blocks = defaultdict(list)
        self.staged: dict[str, Pile] = defaultdict(Pile)
        self.carried: dict[str, Pile] = defaultdict(Pile)
        self.writer = StateWriter(job.storage, job.epoch)
        self.result = Result()
        self.row_steps: dict[str, RowStep] = {}

    def read(self, ranges: Iterable[Range], carried: Iterable[Carried]) -> None:
        """Level 0: what comes into the segment, from the log and from segments before it."""
        self._read_log(ranges)
        for reader, file in carried:
            rows = read_arrow(self.storage, file).read_all()
            name, _, port = reader.partition(":")
            if not port:
                self.push(name, rows)
            elif name in self.program.kernels:
                self.prepare(name, int(port), rows, None)
            else:
                self.push(name, self._rowwise(self.program.plan.step(name), int(port), rows, None))

    def run_level(self, level: int, arrived: Mapping[int, Blocks], mine: Iterable[int]) -> None:
        """A later level: every keyed step of it, in each of these buckets."""
        for step in self.program.keyed(self.job.segment, level):
            for bucket in mine:
                self._run_bucket(step, bucket, arrived.get(bucket, {}))

    def _run_bucket(self, step: str, bucket: int, blocks: Blocks) -> None:
        """One bucket of a step, if there is anything to do: rows, or state that time has come for."""
        now, before = self.job.inputs[step], self.job.before.get(step, ())
        refs, early = self.job.refs.get((step, bucket), []), self.program.early.get(step)
        has_rows = any((step, port) in blocks for port in range(len(now)))
        if has_rows or (refs and (now != before or (early and crossed(self.job.clock, early)))):
            self.step(step, bucket, blocks, refs, before, list(now), self.job.answered.get(step, NEVER))

    def _read_log(self, spans: Iterable[Range]) -> None:
        """Reads ranges of sources and pushes their rows, many at a time: every push has its price."""
        for step, ranges in groupby(sorted(spans), key=attrgetter("step")):
            topic, held = self.program.sources[step].topic, list[pa.Table]()
            for span in ranges:
                for rows in self._pieces(span, self.job.refs.get((step, span.partition), [])):
                    held.append(rows)
                    if sum(r.num_rows for r in held) >= PIECE:
                        self.push(step, _together(held), topic)
                        held = []
            if held:
                self.push(step, _together(held), topic)

    def _pieces(self, span: Range, refs: list[RunRef]) -> Iterator[pa.Table]:
        spec = self.program.sources[span.step]
        clocks = DeviceClocks(spec.clock, [read_run(self.storage, ref) for ref in refs]) if spec.clock else None
        for piece in read(topic_of(spec, self.job.log), spec, span, clocks):
            self.result.fates[span.step].update(piece.fates)
            self.result.accounts[span.step].update(piece.account)
            self.result.times[span.step, span.partition] = piece.time
            self.result.marks[span.step, span.partition] = piece.mark
            if piece.dead:
                self.staged[DEAD].append(letters.unreadable(span, spec.topic, piece.dead))
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
            self.staged[LATE].append(letters.late(step, rows))
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
        state = load_state(self.storage, refs, before, self.job.clock, answered)
        with self._named(step):
            stepped = kernel.step(state, rows, now)
            self._keep(kernel, step, bucket, refs, stepped.changes)
        self._count_results(step, stepped)
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

    def _count_results(self, step: str, stepped: Stepped) -> None:
        """Results that the user's own aggregates give, and those that they fail to give, are counted apart from the rows."""
        if step not in self.program.results:
            return
        given = int(pc.sum(put_in(stepped.rows)).as_py() or 0)
        failed = 0 if stepped.failed is None else stepped.failed.num_rows
        results = replace(self.program.plan.step(step), name=result_step(step))
        self.result.fates[results.name].update(+Counter({"in": given + failed, "passed": given}))
        if stepped.failed is not None:
            causes = enumerate(values_in(stepped.failed.column(FAILED), dict))
            self.fail(results, stepped.failed, [Failure(i, cause["expression"], cause["cause"]) for i, cause in causes])

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
                path, size = pile.write(self.storage, f"staged/{self.job.epoch}-{sink}")
                self.result.staged.append(StagedRef(sink, path, pile.rows, size))
        for reader, pile in self.carried.items():
            path, _ = pile.write(self.storage, f"staged/{self.job.epoch}", CARRIED)
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
