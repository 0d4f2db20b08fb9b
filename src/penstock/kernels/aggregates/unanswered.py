"""Groups for which a user's own aggregate gives no result: they are told apart from those that a step has a row for."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns import FAILED
from penstock.kernels.port import Changes, Stepped

TYPE = pa.struct([("expression", pa.string()), ("cause", pa.string())])


class NoResult(Exception):
    """Some groups have no result. values: of all groups, null for these; causes: by the number of the group."""

    def __init__(self, called: str, values: pa.Array, causes: Mapping[int, str]) -> None:
        super().__init__(called, values, causes)
        self.called, self.values, self.causes = called, values, causes


def marked(failures: list[NoResult], groups: int) -> pa.Array:
    """The column FAILED; of several aggregates that fail for a group the first is named."""
    found: list[dict[str, str] | None] = [None] * groups
    for failure in reversed(failures):
        for group, cause in failure.causes.items():
            found[group] = {"expression": failure.called, "cause": cause}
    return pa.array(found, TYPE)


def with_failed(rows: pa.Table, made: Mapping[str, Any]) -> pa.Table:
    """Rows as they were made of these columns, and beside them what failed, if anything did."""
    return rows.append_column(FAILED, made[FAILED]) if FAILED in made else rows


def parted(rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """The rows that have a result, and those that have none, with FAILED."""
    if FAILED not in rows.column_names:
        return rows, None
    good = rows.column(FAILED).is_null()
    return rows.filter(good).drop_columns([FAILED]), rows.filter(pc.invert(good))


def stepped(rows: pa.Table, changes: Changes) -> Stepped:
    """What a step gives whose rows stay as they are."""
    good, failed = parted(rows)
    return Stepped(good, changes, failed=failed)
