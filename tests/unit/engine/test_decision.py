"""Decisions: read back as they were written, or refused; made by one driver of many."""

import zlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.time import FOREVER, NEVER
from penstock.engine.run.epoch.decision import Decision, Decisions, EngineMark, PartitionState, SourceState
from penstock.engine.state.refs import RunRef, StagedRef
from penstock.errors import Damaged, LostRace, Mismatch, PenstockError, Replaced
from penstock.storage.memory import MemoryStorage

LIFE = "0123456789abcdef" * 2


def a_decision(epoch: int = 3, generation: int = 2) -> Decision:
    return Decision(
        flow="shop",
        incarnation=LIFE,
        generation=generation,
        epoch=epoch,
        clock=1_700_000_000_000_000,
        fingerprint="f" * 32,
        buckets=2,
        sources={"orders": SourceState("t1", {0: PartitionState(7, 5, NEVER, 4), 11: PartitionState(0)}, used=FOREVER)},
        ranges={"orders": {0: (3, 7)}},
        marks=(EngineMark("orders", 11, 0, 5), EngineMark("users", 0, 3, 8, "enriched")),
        frontiers={"orders": 5, "sales": NEVER},
        state=(RunRef("sales", 1, "windows", 60, 0, "state/sales/3-windows-a-b.arrow", 0, 4),),
        staged=(StagedRef("view.sales", "staged/3-view.sales-a-b.arrow", 2, 1000),),
        fates={"sales": {"in": 4, "on time": 4}},
        rows=4,
        answered={"enriched": 8},
        deltas={"sales": {"in": 2}},
    )


def test_a_decision_is_read_back_as_it_was_written() -> None:
    assert Decision.decode(a_decision().encode(), "epochs/3") == a_decision()


def test_a_decision_from_before_there_were_tables_can_be_read() -> None:
    body = orjson.loads(a_decision().encode().split(b"\n", 1)[1])
    del body["answered"]
    body["marks"] = [mark[:4] for mark in body["marks"]]
    data = orjson.dumps(body)
    old = Decision.decode(b"penstock decision 1 %08x\n" % zlib.crc32(data) + data, "epochs/3")
    assert old.answered == {}
    assert [mark.step for mark in old.marks] == ["", ""]


def test_a_decision_of_a_newer_version_is_refused_as_such() -> None:
    body = a_decision().encode().split(b"\n", 1)[1].rstrip(b"\n")
    data = b"penstock decision 3 %08x\n" % zlib.crc32(body, 3) + body
    with pytest.raises(Mismatch, match=r"epochs/3 of flow shop was written by a newer version[^:]*\n.*reads up to 2"):
        Decision.decode(data, "epochs/3", "shop")


times = st.integers(NEVER, FOREVER)


@given(st.dictionaries(st.integers(0, 9999), st.tuples(times, times, times)), st.text(max_size=20), times)
def test_any_numbers_and_names_survive(partitions: dict[int, tuple[int, int, int]], step: str, used: int) -> None:
    source = SourceState("id", {p: PartitionState(p, *v) for p, v in partitions.items()}, used)
    decision = Decision("f", LIFE, 1, 0, 0, "", 1, {step: source}, {}, (), {step: used}, (), (), {step: {"in": 2}})
    assert Decision.decode(decision.encode(), "x") == decision


def decoded(data: bytes) -> Decision | None:
    try:
        return Decision.decode(data, "epochs/3")
    except Damaged:
        return None


def test_every_flipped_bit_is_noticed() -> None:
    data = a_decision().encode()
    for at in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        # A letter of the checksum in the other case, or another end of line, changes nothing of what it says.
        assert decoded(bytes(flipped)) in (None, a_decision()), at


def test_a_decision_cut_at_any_byte_is_noticed() -> None:
    data = a_decision().encode()
    for size in range(len(data) - 1):
        with pytest.raises(Damaged, match="epochs/3"):
            Decision.decode(data[:size], "epochs/3")


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"penstock decision 2 00000000\n{}\n", b"penstock decision 1 a3830434\n{}\n", b"\xff\n\xff"]
)
def test_what_is_no_decision_is_refused(data: bytes) -> None:
    with pytest.raises(Damaged):
        Decision.decode(data, "epochs/3")


def test_whoever_comes_second_is_told_who_won() -> None:
    storage = MemoryStorage({"incarnation": LIFE.encode()})
    Decisions(storage, "shop").publish(a_decision(generation=2))
    with pytest.raises(LostRace, match="another driver decided epoch 3 of flow shop") as lost:
        Decisions(storage, "shop").publish(a_decision(generation=1))
    assert "it is generation 2; this one is 1" in str(lost.value)
    assert Decisions(storage, "shop").read(3).generation == 2


def test_the_newest_decision_counts_and_a_damaged_one_is_no_reason_to_take_an_older() -> None:
    storage = MemoryStorage({"incarnation": LIFE.encode()})
    decisions = Decisions(storage, "shop")
    assert decisions.last() is None
    decisions.publish(a_decision(9))
    decisions.publish(a_decision(10))
    last = decisions.last()
    assert last
    assert last.epoch == 10
    storage.files["epochs/000000000010"][-20] ^= 1
    with pytest.raises(Damaged, match="000000000010"):
        decisions.last()


def test_every_start_has_its_own_generation_even_when_their_files_are_gone() -> None:
    storage = MemoryStorage({"incarnation": LIFE.encode()})
    decisions = Decisions(storage, "shop")
    assert [decisions.generation({"pid": n}) for n in range(3)] == [1, 2, 3]
    assert decisions.owner() == {"pid": 2}
    decisions.publish(a_decision(generation=3))
    storage.remove("generations")
    assert decisions.generation({}) == 4


@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_an_unreadable_generation_says_nothing_of_its_owner(content: bytes) -> None:
    assert Decisions(MemoryStorage({"generations/000000000001": content}), "shop").owner() == {}


def test_a_life_begins_once() -> None:
    storage = MemoryStorage()
    assert Decisions(storage, "shop").incarnation(LIFE) == (LIFE, True)
    assert Decisions(storage, "shop").incarnation("f" * 32) == (LIFE, False)


@pytest.mark.parametrize("content", [b"", LIFE.encode()[:16], b"x" * 32, b"\xff" * 32])
def test_a_damaged_incarnation_is_refused(content: bytes) -> None:
    with pytest.raises(Damaged, match="incarnation"):
        Decisions(MemoryStorage({"incarnation": content}), "shop").incarnation(LIFE)


def test_decisions_without_an_incarnation_are_refused() -> None:
    storage = MemoryStorage({"epochs/000000000003": a_decision().encode()})
    with pytest.raises(PenstockError, match="no incarnation file"):
        Decisions(storage, "shop").incarnation(LIFE)


@pytest.mark.parametrize("files", [{}, {"incarnation": b"f" * 32}, {"incarnation": LIFE.encode(), "removing/0001": b"{}"}])
def test_a_flow_that_was_reset_or_dropped_takes_no_decision_of_an_earlier_life(files: dict[str, bytes]) -> None:
    storage = MemoryStorage(files)
    with pytest.raises(Replaced, match="flow shop was reset or dropped while this driver was away"):
        Decisions(storage, "shop").publish(a_decision())
    assert Decisions(storage, "shop").epochs() == []


class Forgetful(MemoryStorage):
    """Publishes, and says that the file was there already: as a network that loses the answer and asks again."""

    def publish(self, path: str, data: bytes) -> None:
        super().publish(path, data)
        super().publish(path, data)


def test_a_decision_of_our_own_that_is_said_to_be_there_already_is_ours() -> None:
    decisions = Decisions(Forgetful({"incarnation": LIFE.encode()}), "shop")
    decisions.publish(a_decision())
    assert decisions.last() == a_decision()
    with pytest.raises(LostRace, match="it is generation 2; this one is 3"):
        decisions.publish(a_decision(generation=3))
