"""Steps that only Spark SQL may evaluate: their rows go through the JVM, from files to files, between two segments."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import Column, filled, values_in
from penstock.core.columns import ADDRESS, APPEND_TIME, OP, POSITION, TIME, TRIED, WATERMARK
from penstock.core.schema import Schema
from penstock.engine.execute.failing import Failure, dead_letters, put_in, sample, stopped
from penstock.engine.execute.job import Carried, Job, Result
from penstock.engine.execute.program import DEAD
from penstock.engine.execute.spark_tasks import settle
from penstock.engine.execute.sql_guard import Guard, tried_expressions
from penstock.engine.execute.staging import Pile
from penstock.engine.spark.failures import may_be_a_row, translated
from penstock.engine.state.refs import StagedRef
from penstock.engine.state.runs import CARRIED, read_arrow, write_arrow
from penstock.plan import Step
from penstock.storage.port import Storage

SYSTEM = {TIME: "bigint", WATERMARK: "bigint", POSITION: "binary"}  # what every row has
_MORE = {OP: "tinyint", APPEND_TIME: "bigint", ADDRESS: "bigint"}  # what some have: rows that change, append times, an order
Files = list[tuple[str, int]]  # and their rows
_ARROW = {"tinyint": pa.int8(), "bigint": pa.int64(), "binary": pa.binary()}


class SqlSteps:
    """One for a session. A job that fails is run once more with every expression tried for itself, which tells the rows on which
    one fails (G26); a step that had such rows is run like that from then on, so that it costs one job."""

    def __init__(self, session: Any, *, careful: bool = False) -> None:
        """careful: expressions are tried from the first job on."""
        self.session, self._careful = session, careful
        self._failing: set[tuple[str, str]] = set()  # flow and step

    @cached_property
    def _guard(self) -> Guard:
        return Guard(self.session)

    def __call__(self, job: Job, result: Result) -> list[Carried]:
        """What Spark makes of the rows that a segment carried to such steps; counts go into the result."""
        waiting: dict[str, list[str]] = {}
        for reader, file, rows in result.carried:
            step = job.program.plan.step(reader.partition(":")[0])
            if step.node.needs_sql:
                waiting.setdefault(step.name, []).append(file)
                result.fates[step.name]["in"] += rows
        out: list[Carried] = []
        for name, files in waiting.items():
            step, fates = job.program.plan.step(name), result.fates[name]
            with translated(job.program.plan.flow, job.epoch, step):
                made, failed = self._evaluate(job, step, files)
                self._set_aside(job, step, failed, result)
            passed = sum(rows for _, rows in made)
            fates["passed"] += passed
            if step.node.kept_by():
                fates["filtered"] = fates["in"] - passed - fates["dead"] - fates["withdrawn"]
            out += [Carried(name, file) for file, rows in made if rows]
        return out

    def _evaluate(self, job: Job, step: Step, files: list[str]) -> tuple[Files, Files]:
        """Files of what came of the rows, and of rows on which the step failed, as they came in with what was tried."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        place = (job.program.plan.flow, step.name)
        if self._careful or place in self._failing:
            return self._run(job, step, files, guarded=True)
        try:
            return self._run(job, step, files)
        except (Py4JError, PySparkException) as error:
            if not may_be_a_row(error):
                raise
        made, failed = self._run(job, step, files, guarded=True)
        if failed:
            self._failing.add(place)
        return made, failed

    def _run(self, job: Job, step: Step, files: list[str], *, guarded: bool = False) -> tuple[Files, Files]:
        schema = job.program.plan.step(step.inputs[0]).schema
        there = read_arrow(job.storage, files[0]).schema.names
        system = SYSTEM | {name: kind for name, kind in _MORE.items() if name in there}
        wanted = pa.schema([*step.schema.arrow, *((name, _ARROW[kind]) for name, kind in system.items())])
        reader = _reader(job.storage, files, [*schema.names, *system])
        session = self._guard.session if guarded else self.session
        rows = session.range(0, len(files), 1, len(files)).mapInArrow(reader, ddl(schema, system))
        if guarded:
            write, rows = sorting_writer(job, step, wanted), self._guard.tried(step, rows)
        else:
            write, rows = _writer(job.storage, job.epoch, wanted), apply(step, rows, system)
        written = rows.mapInArrow(write, "failed boolean, file string, rows bigint").collect()
        made, failed = ([(row.file, row.rows) for row in written if row.failed is kind] for kind in (False, True))
        return made, failed

    def _set_aside(self, job: Job, step: Step, files: Files, result: Result) -> None:
        """Dead letters of the rows on which the step failed; or the error that stops the flow."""
        if not files:
            return
        rows = pa.concat_tables([read_arrow(job.storage, file).read_all() for file, _ in files])
        new = rows.filter(put_in(rows)).sort_by([(TIME, "ascending"), (POSITION, "ascending")])
        failures = self._failures(step, new if step.on_error == "dead" else new.slice(0, 1))
        new = new.drop_columns([name for name in new.column_names if name.startswith(TRIED)])
        if failures:
            result.samples[step.name] = sample(new.slice(0, 1), failures[0])
            if step.on_error == "stop":
                raise stopped(job.program.plan.flow, step, result.samples[step.name])
            letters = Pile()
            letters.append(dead_letters(step.name, new, failures))
            path, size = letters.write(job.storage, f"staged/{job.epoch}-{DEAD}")
            result.staged.append(StagedRef(DEAD, path, letters.rows, size))
        dead = Counter({"dead": len(failures), "withdrawn": rows.num_rows - new.num_rows})
        result.fates[step.name].update(+dead)

    def _failures(self, step: Step, rows: pa.Table) -> list[Failure]:
        """Of each row the first expression that fails on it, and why."""
        found: dict[int, Failure] = {}
        for number, (_, expression) in enumerate(tried_expressions(step)):
            raised = values_in(pc.indices_nonzero(rows.column(f"{TRIED}{number}").is_null()), int)
            mine = [i for i in raised if i not in found]
            causes = self._guard.causes(expression, rows.take(pa.array(mine, pa.int64())))
            found |= {i: Failure(i, expression.text, cause) for i, cause in zip(mine, causes, strict=True)}
        return [found[i] for i in sorted(found)]


def ddl(schema: Schema, system: Mapping[str, str]) -> str:
    """The columns of rows on their way through Spark SQL."""
    return ", ".join([schema.ddl(), *(f"{name} {kind}" for name, kind in system.items())])


def apply(step: Step, rows: Any, system: Iterable[str]) -> Any:
    """The step as Spark SQL; system columns pass through."""
    condition = step.node.kept_by()
    if condition:
        return rows.where(condition.text).select(*step.schema.names, *system)
    return rows.selectExpr(*(f"{e.text} as `{name}`" for name, e in step.node.projected()), *(f"`{c}`" for c in system))


def _reader(storage: Storage, files: list[str], names: list[str]) -> Any:
    def read(ids: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for number in [i for batch in ids for i in values_in(batch.column(0), int)]:
            table = read_arrow(storage, files[number]).read_all()
            yield from table.select(names).to_batches()

    return read


def _writer(storage: Storage, epoch: int, wanted: pa.Schema) -> Any:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [b for b in batches if b.num_rows]
        if not held:
            return
        table = pa.Table.from_batches(held).cast(wanted)
        yield _file(storage, epoch, table, failed=False)

    return write


def sorting_writer(job: Job, step: Step, wanted: pa.Schema) -> Any:
    """Writes what came of rows, and apart from it the rows on which an expression failed, as they came."""
    storage, epoch, tried = job.storage, job.epoch, [f"{TRIED}{i}" for i in range(len(tried_expressions(step)))]

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [b for b in batches if b.num_rows]
        if not held:
            return
        table = pa.Table.from_batches(held)
        failed = pa.repeat(False, table.num_rows) if step.on_error == "null" else _any_null(table, tried)
        made = selected(step, table.filter(pc.invert(failed)), wanted)
        yield _file(storage, epoch, made, failed=False)
        if pc.any(failed).as_py():
            yield _file(storage, epoch, table.filter(failed), failed=True)

    return write


def _any_null(rows: pa.Table, names: Sequence[str]) -> Column:
    """Where a row has a null in one of these columns."""
    found: Column = rows.column(names[0]).is_null()
    for name in names[1:]:
        found = pc.or_(found, rows.column(name).is_null())
    return found


def selected(step: Step, rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """What the step makes of rows beside which its expressions stand, worked out."""
    values = {name: _value(rows.column(f"{TRIED}{i}")) for i, (name, _) in enumerate(tried_expressions(step))}
    if step.node.kept_by():
        return rows.filter(filled(values[""], False)).select(wanted.names).cast(wanted)
    passed = {name: rows.column(e.columns[0]) for name, e in step.node.projected() if name not in values}
    columns = [values[n] if n in values else passed[n] if n in passed else rows.column(n) for n in wanted.names]
    return pa.table(columns, names=wanted.names).cast(wanted)


def _value(tried: pa.ChunkedArray) -> pa.ChunkedArray:
    value: pa.ChunkedArray = pc.struct_field(tried, "v")
    return value


def _file(storage: Storage, epoch: int, table: pa.Table, *, failed: bool) -> pa.RecordBatch:
    path, _ = write_arrow(storage, f"staged/{epoch}", [table], CARRIED)
    return pa.RecordBatch.from_pydict({"failed": [failed], "file": [path], "rows": [table.num_rows]})
