"""Current rows: of every key the newest version, whatever the order in which versions come."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from amount import cases
from colliding import colliding
from penstock import plan
from penstock.core.change import Op
from penstock.core.columns import HASH, OP, POSITION, TIME, WATERMARK
from penstock.core.time import NEVER
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import Prepared
from penstock.kernels.registry import kernel_of
from penstock.kernels.tables.latest import LatestKernel
from unit.kernels.cutting import SCHEMA, Log, Row, a_log, blocks, counted, in_one_epoch, run_anyhow, table
from unit.kernels.sending import folded


class Deleting(LatestKernel):
    """A version without v is a delete."""

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        gone = rows["v"].is_null().to_numpy()
        ops = np.where(gone, int(Op.DELETE), int(Op.INSERT)).astype(np.int8)
        return super().prepare(port, rows.append_column(OP, pa.array(ops)))


def current(log: Log, order: str | None = None, *, by_position: bool = False) -> list[dict[str, Any]]:
    """By definition: all versions of a key in order; the last one holds, unless it is a delete."""

    def rank(row: Row) -> Any:
        value = getattr(row, order) if order else None
        return row.position if by_position else ((value is not None, value or 0), row.order)

    newest = {row.k: row for row in sorted(log.rows, key=rank)}
    return [
        {"k": r.k, "v": r.v, "x": r.x, "s": r.s, TIME: r.t, WATERMARK: NEVER, POSITION: r.position}
        for r in newest.values()
        if r.v is not None
    ]


@pytest.mark.parametrize("block", blocks(8))
def test_any_cut_shows_the_newest_version_of_each_key(block: int) -> None:
    for seed in range(block * 60, block * 60 + 60):
        rng = random.Random(seed)
        log = a_log(rng)
        made = Deleting(plan.Latest(("k",)), SCHEMA)
        out, once = run_anyhow(made, log, rng, drain=False), in_one_epoch(made, log, drain=False)
        assert counted(folded(out, ["k"])) == counted(folded(once, ["k"])) == counted(current(log)), seed
        assert out.fates == once.fates == {"passed": len(log.rows)}


@pytest.mark.parametrize("order", ["v", "s"])
def test_a_column_may_say_which_version_is_newest(order: str) -> None:
    for seed in range(cases(60)):
        rng = random.Random(seed)
        log = a_log(rng)
        made = LatestKernel(plan.Latest(("k",), order), SCHEMA)
        every = {
            r.k: r
            for r in sorted(
                log.rows, key=lambda r: ((getattr(r, order) is not None, getattr(r, order) or type_of(order)()), r.order)
            )
        }
        found = folded(run_anyhow(made, log, rng, drain=False), ["k"])
        assert {row["k"]: row[POSITION] for row in found} == {k: r.position for k, r in every.items()}, seed


def type_of(column: str) -> type:
    return {"v": int, "s": str}[column]


def test_by_position_the_time_does_not_matter() -> None:
    for seed in range(cases(60)):
        rng = random.Random(seed)
        log = a_log(rng)
        made = Deleting(plan.Latest(("k",), by_position=True), SCHEMA)
        found = folded(run_anyhow(made, log, rng, drain=False), ["k"])
        assert counted(found) == counted(current(log, by_position=True)), seed


def test_keys_that_share_a_hash_are_told_apart() -> None:
    for seed in range(cases(30)):
        rng = random.Random(seed)
        log = a_log(rng, (*colliding(5), None))
        made = Deleting(plan.Latest(("k",)), SCHEMA)
        assert counted(folded(run_anyhow(made, log, rng, drain=False), ["k"])) == counted(current(log)), seed


def version(t: int, v: int | None, offset: int, k: str = "a") -> Row:
    return Row(t, k, v, 0.5, None, NEVER, offset.to_bytes(8, "big"))


def test_older_never_overwrites_newer_also_where_the_newer_one_is_a_delete() -> None:
    runner = MemoryRunner(Deleting(plan.Latest(("k",)), SCHEMA))
    sent = [
        [(Op(r[OP]).name, r["v"]) for r in runner.epoch([[table([version(*given)])]], [NEVER]).rows.to_pylist()]
        for given in [(5, 1, 0), (4, 2, 1), (7, None, 2), (6, 3, 3), (8, 4, 4)]
    ]
    assert sent == [[("INSERT", 1)], [], [("DELETE", 1)], [], [("INSERT", 4)]]


def test_a_delete_of_a_row_that_is_not_there_is_remembered() -> None:
    runner = MemoryRunner(Deleting(plan.Latest(("k",)), SCHEMA))
    for given in [(5, None, 0), (4, 2, 1)]:
        assert runner.epoch([[table([version(*given)])]], [NEVER]).rows.num_rows == 0


def test_a_key_that_is_nan_is_one_key() -> None:
    schema = pa.schema([("x", pa.float64()), ("v", pa.int64())])
    runner = MemoryRunner(LatestKernel(plan.Latest(("x",)), schema))
    sent = []
    for t, x in enumerate((float("nan"), -float("nan"), 0.0, -0.0)):
        rows = table([version(t, t, t)._replace(x=x)]).select(["x", "v", TIME, WATERMARK, POSITION])
        sent.append([Op(r[OP]).name for r in runner.epoch([[rows]], [NEVER]).rows.to_pylist()])
    assert sent == [["INSERT"], ["UPDATE_BEFORE", "UPDATE_AFTER"]] * 2


def test_of_many_versions_of_a_key_one_travels() -> None:
    made = kernel_of(plan.Latest(("k",)), [SCHEMA], SCHEMA)
    rows = [version(t, t, offset, k) for offset, (t, k) in enumerate([(3, "a"), (1, "b"), (9, "a"), (4, "a")])]
    travelling = made.prepare(0, table(rows)).rows
    assert sorted(zip(travelling["k"].to_pylist(), travelling["v"].to_pylist(), strict=True)) == [("a", 9), ("b", 1)]
    assert HASH in travelling.column_names
