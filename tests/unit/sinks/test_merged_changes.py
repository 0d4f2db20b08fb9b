"""The changes of several epochs at once: the same as one after the other, whatever is put in and taken out."""

import random

import pyarrow as pa
import pytest

from penstock.core.columns import POSITION, TIME
from penstock.core.schema import Schema
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.changes import Keep, merged
from penstock.sinks.stores.port import Changes

SPEC = SinkSpec("shop", "results", Schema.of("epoch long, put string"), ("epoch",), updating=True)


def table(rows: list[tuple[int | None, str]]) -> pa.Table:
    keys, texts = [key for key, _ in rows], [text for _, text in rows]
    columns = {
        "epoch": pa.array(keys, pa.int64()),
        "put": pa.array(texts, pa.string()),
        TIME: pa.array([0] * len(rows), pa.int64()),
    }
    return pa.table(columns | {POSITION: pa.array([text.encode() for text in texts], pa.binary())})


def random_epoch(rng: random.Random, number: int) -> Changes:
    keys = rng.sample([None, *range(8)], rng.randrange(6))
    cut = rng.randrange(len(keys) + 1)
    put, gone = [(key, f"{number}.{key}") for key in keys[:cut]], [(key, f"{number}.{key}") for key in keys[cut:]]
    return Changes(table(put), table(gone))


def folded(held: dict[int | None, str], changes: Changes, keep: Keep = "last") -> dict[int | None, str]:
    held = {key: text for key, text in held.items() if key not in changes.gone["epoch"].to_pylist()}
    new = dict(zip(changes.put["epoch"].to_pylist(), changes.put["put"].to_pylist(), strict=True))
    return held | new if keep == "last" else new | held


@pytest.mark.parametrize("seed", range(200))
def test_merged_changes_fold_to_what_each_in_turn_does(seed: int) -> None:
    rng = random.Random(seed)
    epochs = [random_epoch(rng, number) for number in range(rng.randrange(1, 6))]
    held = folded({}, random_epoch(rng, -1))
    wanted = held
    for epoch in epochs:
        wanted = folded(wanted, epoch)
    together = merged(epochs, SPEC)
    keys = together.put["epoch"].to_pylist() + together.gone["epoch"].to_pylist()
    assert len(keys) == len(set(keys)), "two changes of one key"
    assert folded(held, together) == wanted


@pytest.mark.parametrize("seed", range(50))
def test_where_the_first_row_of_a_key_holds_it_holds_over_epochs(seed: int) -> None:
    rng = random.Random(seed)
    epochs = [random_epoch(rng, number) for number in range(4)]
    held = folded({}, random_epoch(rng, -1))
    wanted = held
    for epoch in epochs:
        wanted = folded(wanted, epoch, "first")
    assert folded(held, merged(epochs, SPEC, "first"), "first") == wanted


def test_rows_without_a_key_are_all_there_in_their_order() -> None:
    spec = SinkSpec("shop", "results", SPEC.schema, ())
    epochs = [Changes(table([(1, "a"), (1, "b")]), table([])), Changes(table([(1, "a")]), table([]))]
    assert merged(epochs, spec).put["put"].to_pylist() == ["a", "b", "a"]
