"""Steps that only Spark SQL may evaluate: their rows go through the JVM, from files to files, between two segments."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from penstock.core.change import POSITION, TIME, WATERMARK
from penstock.engine.failures import translated
from penstock.engine.placement import Carried, Job, settle
from penstock.engine.program import needs_sql
from penstock.engine.state import CARRIED, read_arrow, write_arrow
from penstock.engine.work import Result
from penstock.flow.plan import Select, Step, Where
from penstock.storage.port import Storage

_SYSTEM_DDL = f"{TIME} bigint, {WATERMARK} bigint, {POSITION} binary"


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
        ddl = f"{schema.ddl()}, {_SYSTEM_DDL}"
        wanted = pa.schema([*step.schema.arrow, (TIME, pa.int64()), (WATERMARK, pa.int64()), (POSITION, pa.binary())])
        rows = self.session.range(0, len(files), 1, len(files)).mapInArrow(_reader(job.storage, files, schema.names), ddl)
        with translated(job.program.plan.flow, job.epoch):
            made = _apply(step, rows).mapInArrow(_writer(job.storage, job.epoch, wanted), "file string, rows bigint").collect()
        return [(row.file, row.rows) for row in made]


def _apply(step: Step, rows: Any) -> Any:
    system = [TIME, WATERMARK, POSITION]
    if isinstance(step.definition, Where):
        return rows.where(step.definition.condition.text).select(*step.schema.names, *system)
    assert isinstance(step.definition, Select)
    return rows.selectExpr(*(f"{e.text} as `{name}`" for name, e in step.definition.columns), *(f"`{c}`" for c in system))


def _reader(storage: Storage, files: list[str], names: list[str]) -> Any:
    def read(ids: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for number in [i for batch in ids for i in batch.column(0).to_pylist()]:
            table = read_arrow(storage, files[number]).read_all()
            yield from table.select([*names, TIME, WATERMARK, POSITION]).to_batches()

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
