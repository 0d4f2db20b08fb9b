"""A store compared with what it should hold, against plain dictionaries."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.columns import POSITION, TIME
from penstock.core.schema import Schema
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores import content
from penstock.sinks.stores.comparing import Compared, Comparison
from penstock.sinks.stores.content import Content
from penstock.sinks.stores.keys import keys_of
from penstock.sinks.stores.port import Changes
from penstock.storage.memory import MemoryStorage

SCHEMA = Schema.of("id long, text string, x double, tags array<long>")
KEYED = SinkSpec("shop", "results", SCHEMA, ("id",), updating=True)
PLAIN = SinkSpec("shop", "results", SCHEMA, ())
Value = tuple[str | None, float | None, tuple[int, ...] | None]
Held = Mapping[int, Value]

values = st.tuples(
    st.sampled_from([None, "", "a", "b"]), st.sampled_from([None, 0.0, 1.5, float("nan")]), st.sampled_from([None, (), (1, 2)])
)
helds = st.dictionaries(st.integers(0, 12), values, max_size=10)


def table(rows: Iterable[tuple[int, Value]]) -> pa.Table:
    lines = [{"id": key, "text": text, "x": x, "tags": tags} for key, (text, x, tags) in rows]
    return pa.Table.from_pylist(lines, schema=SCHEMA.arrow)


def staged(rows: Iterable[tuple[int, Value]], start: int = 0) -> pa.Table:
    found = table(rows)
    places = [b"%08d" % (start + n) for n in range(found.num_rows)]
    return found.append_column(TIME, pa.array(range(len(places)), pa.int64())).append_column(
        POSITION, pa.array(places, pa.binary())
    )


def expected(spec: SinkSpec, *epochs: tuple[Sequence[tuple[int, Value]], Sequence[tuple[int, Value]]]) -> Content:
    made = Content(spec, MemoryStorage())
    for number, (put, gone) in enumerate(epochs):
        made.add(Changes(staged(put, number * 100), staged(gone)))
    return made


def same(left: Value, right: Value) -> bool:
    return repr(left) == repr(right)


def numbers(of: Compared) -> tuple[int, int, int]:
    return of.missing, of.extra, of.different


@given(log=helds, gone=st.sets(st.integers(0, 12)), store=helds, parts=st.integers(1, 4))
def test_what_differs_is_found_and_its_changes_make_both_equal(log: Held, gone: set[int], store: Held, parts: int) -> None:
    want = {key: value for key, value in log.items() if key not in gone}
    made = expected(KEYED, (list(log.items()), []), ([], [(key, log[key]) for key in gone & log.keys()]))
    lines = list(store.items())
    comparison = Comparison(made)
    found = comparison.run([table(lines[n::parts]) for n in range(parts)])
    differ = [key for key in want.keys() & store.keys() if not same(want[key], store[key])]
    assert numbers(found) == (len(want.keys() - store.keys()), len(store.keys() - want.keys()), len(differ))
    assert (found.rows, found.expected, found.equal) == (len(store), len(want), found.ranges_apart == 0)
    mended = {key: value for key, value in store.items() if key not in comparison.changes.gone["id"].to_pylist()}
    for row in comparison.changes.put.to_pylist():
        mended[row["id"]] = (row["text"], row["x"], None if row["tags"] is None else tuple(row["tags"]))
    assert {key: repr(value) for key, value in mended.items()} == {key: repr(value) for key, value in want.items()}


@given(log=st.lists(st.integers(0, 3)), store=st.lists(st.integers(0, 3)))
def test_rows_without_a_key_are_counted(log: list[int], store: list[int]) -> None:
    def row(n: int) -> tuple[int, Value]:
        return n, ("a", None, None)

    comparison = Comparison(expected(PLAIN, (list(map(row, log)), [])))
    found = comparison.run([table(map(row, store))] if store else [])
    lacking, beyond = Counter(log) - Counter(store), Counter(store) - Counter(log)
    assert numbers(found) == (lacking.total(), beyond.total(), 0)
    assert Counter(comparison.changes.put["id"].to_pylist()) == lacking
    assert not comparison.changes.gone.num_rows


def test_the_last_digits_of_doubles_are_no_difference() -> None:
    made = expected(KEYED, ([(1, ("a", 0.1 + 0.2, None)), (2, ("a", 1e300, None)), (3, ("a", 2.0, None))], []))
    stored = [(1, ("a", 0.3, None)), (2, ("a", 1e300 * (1 + 1e-12), None)), (3, ("a", 2.001, None))]
    found = Comparison(made).run([table(stored)])
    assert numbers(found) == (0, 0, 1)
    assert [(each.key, each.columns[0].log, each.columns[0].store) for each in found.shown] == [("3", "2", "2.001")]


def test_keys_written_meanwhile_are_not_settled_and_not_changed() -> None:
    made = expected(KEYED, ([(n, ("a", None, None)) for n in range(4)], []))
    touched = keys_of(staged([(1, ("x", None, None)), (9, ("x", None, None))]), ("id",))
    comparison = Comparison(made, touched=touched)
    found = comparison.run(
        [table([(0, ("a", None, None)), (1, ("b", None, None)), (2, ("b", None, None)), (9, ("z", None, None))])]
    )
    assert (*numbers(found), found.unsettled) == (1, 0, 1, 2)
    assert comparison.changes.put["id"].to_pylist() == [2, 3]
    assert not comparison.changes.gone.num_rows


def test_a_store_that_keeps_the_row_it_has_is_compared_by_key() -> None:
    made = expected(KEYED, ([(1, ("a", None, None)), (2, ("a", None, None))], []))
    assert numbers(Comparison(made, by_key=True).run([table([(1, ("other", None, None))])])) == (1, 0, 0)


def test_rows_that_a_store_forgets_are_not_missed() -> None:
    made = expected(KEYED, ([(1, ("a", None, None)), (2, ("a", None, None))], []))
    assert Comparison(made, forgets=True).run([table([(1, ("a", None, None))])]).equal


@pytest.mark.parametrize("spec", [KEYED, PLAIN], ids=["keyed", "plain"])
def test_content_that_is_in_files_is_the_same(spec: SinkSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    def texts(made: Content) -> list[str]:
        return sorted(f"{row['id']} {row['text']}" for part in made.parts() for row in part.put.to_pylist())

    epochs: list[tuple[list[tuple[int, Value]], list[tuple[int, Value]]]]
    epochs = [([(n % 30, (str(n), None, None)) for n in range(e * 20, e * 20 + 20)], []) for e in range(4)]
    if spec.updating:
        epochs[3] = (epochs[3][0][:5], epochs[2][0][10:])
    held: dict[int, str | None] = {}
    for put, gone in epochs:
        held = {key: text for key, text in held.items() if key not in {key for key, _ in gone}}
        held |= {key: text for key, (text, _, _) in put}
    plain = sorted(f"{key} {text}" for put, _ in epochs for key, (text, _, _) in put)
    wanted = sorted(f"{key} {text}" for key, text in held.items()) if spec.key else plain
    assert texts(expected(spec, *epochs)) == wanted
    monkeypatch.setattr(content, "SPILL", 30)
    assert texts(expected(spec, *epochs)) == wanted


def test_a_key_that_stands_there_twice_is_extra() -> None:
    for first, second in [("a", "a"), ("a", "b"), ("b", "a")]:
        rows = [(1, (first, 1.0, None)), (1, (second, 1.0, None))]
        for tables in ([table(rows)], [table(rows[:1]), table(rows[1:])]):
            found = Comparison(expected(KEYED, ([(1, ("a", 1.0, None))], []))).run(tables)
            assert not found.equal
            assert found.extra + found.different >= 1


@pytest.mark.parametrize(("ours", "theirs"), [(1_234_567.89, 1_234_567.0), (1_763_446_000.0, 1_763_447_500.0), (0.0, 1e-300)])
def test_doubles_that_differ_by_more_than_their_last_digits_are_different(ours: float, theirs: float) -> None:
    found = Comparison(expected(KEYED, ([(1, ("a", ours, None))], []))).run([table([(1, ("a", theirs, None))])])
    assert numbers(found) == (0, 0, 1)
