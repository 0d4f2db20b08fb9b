"""Joins of tables: after any changes, cut anyhow, what was sent folds to the join of the rows that are there."""

import math
import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amount import cases
from laws.reference.tables import joined
from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME, WATERMARK
from penstock.core.hashing import hash64
from penstock.core.time import NEVER
from penstock.kernels.memory import MemoryRunner
from penstock.kernels.port import Kernel
from penstock.kernels.registry import kernel_of
from penstock.kernels.tables import current
from penstock.kernels.tables import join_sides as table_join_sides
from penstock.plan import TableJoin
from unit.kernels.changing import Epoch, Row, Running, Table, epochs, many_epochs, plain, told
from unit.kernels.cutting import few_hashes

HOWS = ("inner", "left", "right", "full", "semi", "anti")
LEFT = pa.schema([("id", pa.int64()), ("ref", pa.float64()), ("v", pa.string())])
RIGHT = pa.schema([("id", pa.int64()), ("ref", pa.float64()), ("w", pa.int64())])

REFS = st.sampled_from((None, math.nan, 0.0, -0.0, 1.0, 2.0))
TIMES = st.integers(-2, 2)
lefts = st.fixed_dictionaries({"ref": REFS, "v": st.sampled_from((None, "", "x", "y")), TIME: TIMES})
rights = st.fixed_dictionaries({"ref": REFS, "w": st.sampled_from((None, 1, 2)), TIME: TIMES})


@dataclass(frozen=True)
class Case:
    """How two tables are joined, and who a row of either is: by its id, or by its position."""

    how: str
    keys: tuple[tuple[str, ...], tuple[str, ...]] = (("id",), ("id",))
    right: tuple[tuple[str, str], ...] = (("right_id", "id"), ("w", "w"))
    left_schema: pa.Schema = field(default=LEFT)
    right_schema: pa.Schema = field(default=RIGHT)

    @property
    def of_left(self) -> bool:
        return self.how in ("semi", "anti")

    @property
    def key(self) -> tuple[str, ...]:
        if self.of_left:
            return self.keys[0]
        return ("id", "right_id") if all(self.keys) else ()

    @property
    def output(self) -> pa.Schema:
        if self.of_left:
            return self.left_schema
        return pa.schema([*self.left_schema, *(self.right_schema.field(own).with_name(name) for name, own in self.right)])

    def kernel(self) -> Kernel:
        right = () if self.of_left else self.right
        join = TableJoin(("ref",), self.how, right, self.keys, self.key)  # type: ignore[arg-type]
        return kernel_of(join, [self.left_schema, self.right_schema], self.output)

    def expected(self, lefts: list[Row], rights: list[Row]) -> dict[Any, Row]:
        rows = [self._row(left, right) for left, right in joined(lefts, rights, ["ref"], self.how)]
        return {tuple(told(row[name]) for name in self.key or (POSITION,)): plain(row) for row in rows}

    def _row(self, left: Any, right: Any) -> Row:
        some = left or right
        row = {f.name: left[f.name] if left else None for f in self.left_schema} | {"ref": some["ref"]}
        times = {TIME: max(side[TIME] for side in (left, right) if side), WATERMARK: NEVER}
        if self.of_left:
            return row | times | {POSITION: left[POSITION]}
        row |= {name: right[own] if right else None for name, own in self.right}
        places = [side[POSITION] if side else b"\x00" for side in (left, right)]
        return row | times | {POSITION: b"p" + b"".join(places)}


def hold(case: Case, cut: list[Epoch], fanout: int, hidden: Any = None) -> Running:
    """Runs the epochs and compares after every one of them."""
    left, right = Table("left", case.left_schema, hidden), Table("right", case.right_schema)
    running = Running(case.kernel(), case.key or (POSITION,), fanout)
    for epoch in cut:
        running.epoch([left.edit(epoch.edits[0]), right.edit(epoch.edits[1])], epoch)
        assert running.shown == case.expected(left.shown(), right.shown())
    return running


KEYS = st.tuples(st.sampled_from(((), ("id",))), st.sampled_from(((), ("id",))))
FANOUT = st.sampled_from((2, 3, 8))


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=40)
@given(cut=epochs(lefts, rights), keys=KEYS, fanout=FANOUT)
def test_any_changes_in_any_cut_fold_to_the_join_of_the_tables_as_they_are(how: str, cut: Any, keys: Any, fanout: int) -> None:
    hold(Case(how, keys), cut, fanout)


@pytest.mark.parametrize("how", HOWS)
def test_what_went_stays_away_however_runs_are_merged(how: str) -> None:
    def row(rng: random.Random, name: str) -> Row:
        return {
            "ref": rng.choice((None, 1.0, 2.0, 3.0)),
            name: rng.choice(({"v": "x", "w": 1}[name], None)),
            TIME: rng.randrange(2),
        }

    for seed in range(cases(3)):
        cut = many_epochs(random.Random(seed), 40, lambda rng: row(rng, "v"), lambda rng: row(rng, "w"))
        hold(Case(how, ((), ()) if seed % 3 == 0 else (("id",), ("id",))), cut, 2 + seed % 2)


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=cases(15))
@given(cut=epochs(lefts, rights), keys=KEYS, hidden=st.sampled_from((("v", "x"), ("ref", 1.0), (TIME, 0))), fanout=FANOUT)
def test_halves_of_changes_count_as_what_they_are(how: str, cut: Any, keys: Any, hidden: Any, fanout: int) -> None:
    hold(Case(how, keys), cut, fanout, hidden)


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=cases(10))
@given(cut=epochs(lefts, rights), keys=KEYS, fanout=FANOUT)
def test_keys_and_names_that_share_a_hash_stay_apart(how: str, cut: Any, keys: Any, fanout: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_join_sides, "hash64", few_hashes(hash64))
        patch.setattr(current, "hash64", few_hashes(hash64))
        hold(Case(how, keys), cut, fanout)


ORDERS = pa.schema([("id", pa.int64()), ("ref", pa.int64()), ("v", pa.string())])
USERS = pa.schema([("ref", pa.int64()), ("w", pa.string())])


@dataclass(frozen=True)
class Foreign(Case):
    """A key of the right side that the left side refers to: a row of the join is named by the left row alone."""

    keys: tuple[tuple[str, ...], tuple[str, ...]] = (("id",), ("ref",))
    right: tuple[tuple[str, str], ...] = (("w", "w"),)
    left_schema: pa.Schema = field(default=ORDERS)
    right_schema: pa.Schema = field(default=USERS)

    @property
    def key(self) -> tuple[str, ...]:
        return ("id",) if self.how in ("inner", "left", "semi", "anti") else ("id", "ref")


referring = st.fixed_dictionaries({"ref": st.sampled_from((None, 0, 1, 2, 3)), "v": st.sampled_from(("x", "y")), TIME: TIMES})
referred = st.fixed_dictionaries({"w": st.sampled_from((None, "a", "b")), TIME: TIMES})


class Users(Table):
    """A table whose rows are named by what others refer to."""

    def edit(self, edits: Any) -> pa.Table:
        return super().edit([(name, row and {"ref": name} | row) for name, row in edits])


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=cases(15))
@given(cut=epochs(referring, referred, names=4), fanout=FANOUT)
def test_a_foreign_key_finds_the_row_it_refers_to_and_moves_with_it(how: str, cut: Any, fanout: int) -> None:
    case = Foreign(how)
    left, right = Table("orders", ORDERS), Users("users", USERS)
    running = Running(case.kernel(), case.key, fanout)
    for epoch in cut:
        running.epoch([left.edit(epoch.edits[0]), right.edit(epoch.edits[1])], epoch)
        assert running.shown == case.expected(left.shown(), right.shown())


@settings(max_examples=30)
@given(cut=epochs(lefts, rights, rights), hows=st.tuples(st.sampled_from(HOWS[:4]), st.sampled_from(HOWS[:4])), fanout=FANOUT)
def test_joins_chain(cut: Any, hows: Any, fanout: int) -> None:
    """The join of a join: three tables of which every change comes through both."""
    first = Case(hows[0])
    second = Case(hows[1], (("id", "right_id"), ("id",)), (("third_id", "id"), ("third", "w")), first.output)
    names = ("id", "right_id", "third_id")
    kernel = kernel_of(
        TableJoin(("ref",), hows[1], second.right, second.keys, names),
        [first.output, RIGHT],
        second.output,
    )
    tables = [Table("left", LEFT), Table("right", RIGHT), Table("third", RIGHT)]
    inner, outer = Running(first.kernel(), first.key, fanout), Running(kernel, names, fanout)
    for epoch in cut:
        changes = [table.edit(edits) for table, edits in zip(tables, epoch.edits, strict=True)]
        outer.epoch([inner.epoch(changes[:2], epoch), changes[2]], epoch)
        pairs = [first._row(a, b) for a, b in joined(tables[0].shown(), tables[1].shown(), ["ref"], hows[0])]
        rows = [second._row(a, b) for a, b in joined(pairs, tables[2].shown(), ["ref"], hows[1])]
        assert outer.shown == {tuple(told(row[name]) for name in names): plain(row) for row in rows}


def run(case: Case, fanout: int = 8) -> MemoryRunner:
    return MemoryRunner(case.kernel(), fanout=fanout)


def changes(schema: pa.Schema, *rows: tuple[Op, Row]) -> pa.Table:
    return Table("t", schema).changes([(op, {TIME: 0, POSITION: b"s"} | row) for op, row in rows])


def said(ran: Any) -> list[tuple[Any, ...]]:
    return sorted(((r[OP], r["id"], r["ref"], r.get("w")) for r in ran.rows.to_pylist()), key=str)


def test_a_rename_is_told_of_every_row_that_refers_to_it_and_a_move_takes_the_row_along() -> None:
    runner = run(Foreign("inner"))
    orders = changes(ORDERS, *((Op.INSERT, {"id": i, "ref": 1, "v": ""}) for i in range(3)))
    users = changes(USERS, (Op.INSERT, {"ref": 1, "w": "ann"}), (Op.INSERT, {"ref": 2, "w": "bob"}))
    assert runner.epoch([[orders], [users]], [0, 0]).rows.num_rows == 3
    rename = changes(USERS, (Op.UPDATE_BEFORE, {"ref": 1, "w": "ann"}), (Op.UPDATE_AFTER, {"ref": 1, "w": "anna"}))
    assert said(runner.epoch([[], [rename]], [0, 0])) == [
        *((Op.UPDATE_BEFORE, i, 1, "ann") for i in range(3)),
        *((Op.UPDATE_AFTER, i, 1, "anna") for i in range(3)),
    ]
    move = changes(ORDERS, (Op.UPDATE_BEFORE, {"id": 0, "ref": 1, "v": ""}), (Op.UPDATE_AFTER, {"id": 0, "ref": 2, "v": ""}))
    assert said(runner.epoch([[move], []], [0, 0])) == [(Op.UPDATE_BEFORE, 0, 1, "anna"), (Op.UPDATE_AFTER, 0, 2, "bob")]
    gone = changes(USERS, (Op.DELETE, {"ref": 2, "w": "bob"}))
    assert said(runner.epoch([[], [gone]], [0, 0])) == [(Op.DELETE, 0, 2, "bob")]


def test_a_left_row_turns_null_when_its_partner_goes_and_back_when_it_comes() -> None:
    runner = run(Foreign("left"))
    order = changes(ORDERS, (Op.INSERT, {"id": 0, "ref": 1, "v": ""}))
    user = changes(USERS, (Op.INSERT, {"ref": 1, "w": "ann"}))
    assert said(runner.epoch([[order], []], [0, 0])) == [(Op.INSERT, 0, 1, None)]
    assert said(runner.epoch([[], [user]], [0, 0])) == [(Op.UPDATE_BEFORE, 0, 1, None), (Op.UPDATE_AFTER, 0, 1, "ann")]
    gone = changes(USERS, (Op.DELETE, {"ref": 1, "w": "ann"}))
    assert said(runner.epoch([[], [gone]], [0, 0])) == [(Op.UPDATE_BEFORE, 0, 1, "ann"), (Op.UPDATE_AFTER, 0, 1, None)]


def test_rows_without_op_are_put_in() -> None:
    runner = run(Foreign("inner"))
    order = changes(ORDERS, (Op.INSERT, {"id": 0, "ref": 1, "v": ""})).drop_columns([OP])
    user = changes(USERS, (Op.INSERT, {"ref": 1, "w": "ann"})).drop_columns([OP])
    assert said(runner.epoch([[order], [user]], [0, 0])) == [(Op.INSERT, 0, 1, "ann")]


@pytest.mark.parametrize("how", ["right", "full"])
def test_a_changed_row_does_not_look_up_its_own_side(how: str) -> None:
    """One more order of a user with a thousand: none of the others is read."""
    case = Foreign(how)
    kernel = case.kernel()
    runner = MemoryRunner(kernel)
    orders = changes(ORDERS, *((Op.INSERT, {"id": i, "ref": 1, "v": ""}) for i in range(1000)))
    runner.epoch([[orders], [changes(USERS, (Op.INSERT, {"ref": 1, "w": "ann"}))]], [0, 0])
    state = runner.state(0)
    opened: list[str] = []
    tables = {
        name: {slot: [lambda run=run, name=name: opened.append(name) or run() for run in runs] for slot, runs in slots.items()}  # type: ignore[misc]
        for name, slots in state.runs_of.items()
    }
    one = kernel.prepare(0, changes(ORDERS, (Op.INSERT, {"id": 1000, "ref": 1, "v": ""}))).rows
    kernel_sees = type(state)(tables, state.frontiers)
    stepped = kernel.step(kernel_sees, [one, None], [0, 0])
    assert stepped.rows.num_rows == 1
    assert "left" not in opened
    assert "left-count" in opened


def test_rows_that_went_leave_no_state() -> None:
    """Runs that hold a row from its coming to its going are merged to nothing."""
    runner = run(Case("full"), fanout=2)
    for i in range(64):
        row = {"id": i, "ref": float(i), "v": "", "w": 1}
        for op in (Op.INSERT, Op.DELETE):
            runner.epoch([[changes(LEFT, (op, row))], [changes(RIGHT, (op, row))]], [0, 0])
    state = runner.state(0)
    assert sum(r.num_rows for name in state.runs_of for slot in state.slots(name) for r in state.runs(name, slot)) < 4


def test_positions_are_left_out_where_nobody_reads_them() -> None:
    kernel = Foreign("left").kernel()
    kernel.gives_position = False
    order = changes(ORDERS, (Op.INSERT, {"id": 0, "ref": None, "v": ""}))
    assert POSITION not in MemoryRunner(kernel).epoch([[order], []], [0, 0]).rows.column_names


@pytest.mark.parametrize("how", HOWS)
def test_final_states_are_those_of_another_database(how: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    case, sql = Case(how), {"semi": "semi", "anti": "anti"}.get(how, f"{how} outer" if how != "inner" else how)
    columns = ["id", "v"] if case.of_left else ["id", "v", "right_id", "w"]
    told_ = ", ".join(["l.id", "l.v"] if case.of_left else ["l.id", "l.v", "r.id", "r.w"])
    for seed in range(cases(10)):
        left, right, running = Table("left", LEFT), Table("right", RIGHT), Running(case.kernel(), case.key, 2 + seed % 3)
        rng = random.Random(seed)
        for _ in range(5):
            edits = tuple(tuple(some_edits(rng, name)) for name in "vw")
            epoch = Epoch(edits, 1 + seed % 2, 1 + seed % 3, False, False)
            running.epoch([left.edit(edits[0]), right.edit(edits[1])], epoch)
        mine, theirs = (table.changes([(Op.INSERT, row) for row in table.shown()]) for table in (left, right))
        found = duckdb.sql(f"select {told_} from mine l {sql} join theirs r on l.ref = r.ref").fetchall()
        shown = [tuple(row[name] for name in columns) for row in running.shown.values()]
        assert sorted(shown, key=str) == sorted(found, key=str), seed
        assert mine.num_rows + theirs.num_rows


def some_edits(rng: random.Random, value: str) -> list[Any]:
    values = {"v": ("", "x", None), "w": (1, 2, None)}[value]
    return [
        (rng.randrange(9), rng.choice((None, {"ref": rng.choice((None, 0.0, 1.0, 2.0)), value: rng.choice(values), TIME: 0})))
        for _ in range(rng.randrange(8))
    ]
