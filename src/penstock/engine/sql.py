"""Steps that only Spark SQL may evaluate: their rows go through the JVM, from files to files, between two segments."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.core.change import ADDRESS, APPENDED, OP, POSITION, TIME, WATERMARK
from penstock.core.schema import Schema
from penstock.engine.failures import translated
from penstock.engine.placement import Carried, Job, settle
from penstock.engine.program import needs_sql
from penstock.engine.state import CARRIED, read_arrow, write_arrow
from penstock.engine.work import Result
from penstock.flow.plan import Select, Step, Where
from penstock.storage.port import Storage

SYSTEM = {TIME: "bigint", WATERMARK: "bigint", POSITION: "binary"}  # what every row has
_MORE = {OP: "tinyint", APPENDED: "bigint", ADDRESS: "bigint"}  # what some have: rows that change, append times, an order
_ARROW = {"tinyint": pa.int8(), "bigint": pa.int64(), "binary": pa.binary()}


class SqlSteps:
    def __init__(self, session: Any) -> None:
        self.session = session

    def __call__(self, job: Job, result: Result) -> list[Carried]:
        """What Spark makes of the rows that a segment carried to such steps; counts go into the result."""
        waiting: dict[str, list[str]] = {}
        for reader, file, rows in result.carried:
            step = job.program.plan.step(reader.partition(":")[0])
            if needs_sql(step):
                waiting.setdefault(step.name, []).append(file)
                result.fates[step.name]["in"] += rows
        out: list[Carried] = []
        for name, files in waiting.items():
            step = job.program.plan.step(name)
            made = self._evaluate(job, step, files)
            passed = sum(rows for _, rows in made)
            result.fates[name]["passed"] += passed
            if isinstance(step.definition, Where):
                result.fates[name]["filtered"] = result.fates[name]["in"] - passed
            out += [Carried(name, file) for file, rows in made if rows]
        return out

    def _evaluate(self, job: Job, step: Step, files: list[str]) -> list[tuple[str, int]]:
        schema = job.program.plan.step(step.inputs[0]).schema
        there = read_arrow(job.storage, files[0]).schema.names
        system = SYSTEM | {name: kind for name, kind in _MORE.items() if name in there}
        wanted = pa.schema([*step.schema.arrow, *((name, _ARROW[kind]) for name, kind in system.items())])
        reader = _reader(job.storage, files, [*schema.names, *system])
        rows = self.session.range(0, len(files), 1, len(files)).mapInArrow(reader, ddl(schema, system))
        with translated(job.program.plan.flow, job.epoch):
            made = (
                apply(step, rows, system).mapInArrow(_writer(job.storage, job.epoch, wanted), "file string, rows bigint").collect()
            )
        return [(row.file, row.rows) for row in made]


def ddl(schema: Schema, system: Mapping[str, str]) -> str:
    """The columns of rows on their way through Spark SQL."""
    return ", ".join([schema.ddl(), *(f"{name} {kind}" for name, kind in system.items())])


def apply(step: Step, rows: Any, system: Iterable[str]) -> Any:
    """The step as Spark SQL; system columns pass through."""
    if isinstance(step.definition, Where):
        return rows.where(step.definition.condition.text).select(*step.schema.names, *system)
    assert isinstance(step.definition, Select)
    return rows.selectExpr(*(f"{e.text} as `{name}`" for name, e in step.definition.columns), *(f"`{c}`" for c in system))


def _reader(storage: Storage, files: list[str], names: list[str]) -> Any:
    def read(ids: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for number in [i for batch in ids for i in batch.column(0).to_pylist()]:
            table = read_arrow(storage, files[number]).read_all()
            yield from table.select(names).to_batches()

    return read


def _writer(storage: Storage, epoch: int, wanted: pa.Schema) -> Any:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [b for b in batches if b.num_rows]
        if not held:
            return
        table = pa.Table.from_batches(held).cast(wanted)
        path, _ = write_arrow(storage, f"staged/{epoch}", [table], CARRIED)
        yield pa.RecordBatch.from_pydict({"file": [path], "rows": [table.num_rows]})

    return write
