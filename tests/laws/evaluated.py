"""Spark SQL without Spark: steps that only it may evaluate, with conditions given as Python functions of a row."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.core.columns import TRIED
from penstock.core.schema import Schema
from penstock.engine.execute.failing import cause_of
from penstock.engine.execute.job import Job
from penstock.engine.execute.sql import Files, SqlSteps, sorting_writer
from penstock.engine.execute.sql_guard import tried_expressions
from penstock.engine.state.runs import read_arrow
from penstock.plan import Step

Condition = Callable[[dict[str, Any]], bool | None]


class InPython(SqlSteps):
    """Takes the place of Spark in flow.test(analyzer=…). What is done with rows that fail is done as on Spark."""

    def __init__(self, conditions: Mapping[str, Condition]) -> None:
        super().__init__(None, careful=True)
        self.conditions, self.sql = conditions, self

    def type_of(self, sql: str, schema: Schema) -> pa.DataType:
        return pa.bool_()

    @cached_property
    def _guard(self) -> Any:
        return self

    def causes(self, expression: Any, rows: pa.Table) -> list[str]:
        return [self._tried(expression.text, row)[1] for row in rows.to_pylist()]

    def _run(self, job: Job, step: Step, files: list[str], guarded: bool = False) -> tuple[Files, Files]:
        rows = pa.concat_tables([read_arrow(job.storage, file).read_all() for file in files])
        for number, (_, expression) in enumerate(tried_expressions(step)):
            tried = [self._tried(expression.text, row)[0] for row in rows.to_pylist()]
            rows = rows.append_column(f"{TRIED}{number}", pa.array(tried, pa.struct([("v", pa.bool_())])))
        wanted = pa.schema([f for f in rows.schema if not f.name.startswith(TRIED)])
        written = [file for batch in sorting_writer(job, step, wanted)(rows.to_batches()) for file in batch.to_pylist()]
        made, failed = ([(f["file"], f["rows"]) for f in written if f["failed"] is kind] for kind in (False, True))
        return made, failed

    def _tried(self, text: str, row: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
        try:
            return {"v": self.conditions[text](row)}, ""
        except ArithmeticError as error:
            return None, cause_of(error)
