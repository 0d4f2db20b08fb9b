"""Every offset of a range is told by a read, or the read fails, whatever the client does on the way (G29)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import LogError, OffsetGone, PenstockError, Unreachable
from penstock.log.kafka.read import ranges as reading
from penstock.log.kafka.read.fetching import Fetched
from penstock.log.kafka.read.ranges import PartitionReader
from penstock.log.kafka.settings import KafkaSettings

SETTINGS = KafkaSettings.of("kafka://127.0.0.1:9")
IMPATIENT = replace(SETTINGS, patience=0.02)  # where nothing comes
# A partition: records 10 to 15, the end of their transaction at 16, an aborted one from 17 to 20, records 21 and 22.
RECORDS = [*range(10, 16), 21, 22]
END = 24  # 23 ends the last transaction


class Told(NamedTuple):
    """What one call of the client gives: records, the end of the partition, or an error."""

    records: Sequence[int] = ()
    end: int = -1
    error: Exception | None = None


class Client:
    """A fetcher over that partition. `moments` are what it does instead of what it would do, call by call; None: as it would."""

    def __init__(self, moments: Sequence[Told | None] = (), most: int = 3) -> None:
        self._moments: Iterator[Told | None] = iter(moments)
        self._most, self._at, self.seeks, self.closed = most, -1, list[int](), False

    def seek(self, offset: int) -> None:
        self.seeks.append(offset)
        self._at = offset

    def fetch(self, most: int, seconds: float) -> Fetched:
        told = next(self._moments, None)
        if told is None:
            records = [offset for offset in RECORDS if offset >= self._at][: self._most]
            self._at = records[-1] + 1 if records else END
            told = Told(records, -1 if records else END)
        if told.error:
            raise told.error
        offsets = np.array(told.records, np.int64)
        values = pa.array([b"%d" % offset for offset in told.records], pa.binary())
        return Fetched(offsets, offsets, pa.nulls(len(offsets), pa.binary()), values, end=told.end)

    def rest(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def told_by(reader: PartitionReader, start: int, stop: int) -> list[int]:
    """The records of a read, of which the pieces have told every offset."""
    pieces = list(reader.pieces(start, stop))
    assert [piece.since for piece in pieces] == [start, *(piece.upto for piece in pieces[:-1])]
    assert pieces[-1].upto == stop
    return [int(offset) for piece in pieces for offset in piece.offsets]


@pytest.mark.parametrize("most", [1, 3, 100])
def test_any_range_is_told_whole(most: int) -> None:
    for start in range(10, END):
        for stop in range(start + 1, END + 1):
            reader = PartitionReader(SETTINGS, "orders", 0, Client(most=most))
            assert told_by(reader, start, stop) == [offset for offset in RECORDS if start <= offset < stop]


def test_reads_that_follow_each_other_give_every_record_once() -> None:
    reader = PartitionReader(SETTINGS, "orders", 0, Client(most=100))
    cuts = [10, 12, 13, 17, 18, 21, 22, 24]
    assert [offset for start, stop in pairwise(cuts) for offset in told_by(reader, start, stop)] == RECORDS


GOOD = Told()  # nothing came in time
FAULTS = {
    "the connection is lost": Told(error=LogError("Kafka at 127.0.0.1:9 cannot be used")),
    "the offset is gone": Told(error=OffsetGone("gone")),
    "the partition ends before what was read": Told(end=9),
    "a record comes again": Told(records=[9, 10]),
    "records are out of order": Told(records=[12, 11]),
}


@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("after", range(5))
def test_a_fault_at_any_point_fails_the_read_or_costs_nothing(what: str, after: int) -> None:
    """The partition is read to its end in four calls and the fault comes instead of one of them."""
    given = list[int]()
    client = Client([*[None] * after, FAULTS[what]])
    reader = PartitionReader(SETTINGS, "orders", 0, client)
    if after == 4:
        assert told_by(reader, 10, END) == RECORDS
        return
    pieces = (given.extend(piece.offsets.tolist()) for piece in reader.pieces(10, END))
    with pytest.raises(PenstockError):
        list(pieces)
    assert given == RECORDS[: len(given)]
    assert len(given) < len(RECORDS) or after == 3


@pytest.mark.parametrize("after", range(4))
def test_an_end_at_the_place_that_was_reached_is_waited_out(after: int) -> None:
    """A broker that has just started may show less than it had shown before."""
    reached = [10, 13, 16, 23][after]
    client = Client([*[None] * after, Told(end=reached), GOOD, Told(end=reached)])
    assert told_by(PartitionReader(SETTINGS, "orders", 0, client), 10, END) == RECORDS


@pytest.mark.parametrize("silence", [Told(), Told(end=13)])
def test_a_partition_that_does_not_come_to_the_stop_fails_the_read(silence: Told) -> None:
    client = Client([None, *[silence] * 1_000_000])
    with pytest.raises(LogError, match="gave nothing from offset 13"):
        list(PartitionReader(IMPATIENT, "orders", 0, client).pieces(10, END))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """The clients that read_range opens, whose third call fails first, and then none does."""
    made: list[Client] = []

    def make(settings: KafkaSettings, name: str, partition: int) -> Client:
        made.append(Client([None, Told(error=ERRORS[0])] if not made else []))
        return made[-1]

    monkeypatch.setattr(reading, "fetcher_of", make)
    monkeypatch.setattr(reading, "_OPEN", reading.PerProcess())
    return made


ERRORS: list[Exception] = [LogError("away")]


@pytest.mark.parametrize("error", [LogError("away"), OffsetGone("gone"), MemoryError(), ZeroDivisionError(), Unreachable("away")])
def test_after_any_error_a_range_is_read_by_a_new_client_from_its_start(error: Exception, opened: list[Client]) -> None:
    ERRORS[0] = error
    with pytest.raises(type(error)):
        list(reading.read_range(SETTINGS, "orders", "id", 0, 10, END))
    again = [int(o) for piece in reading.read_range(SETTINGS, "orders", "id", 0, 10, END) for o in piece.offsets]
    assert again == RECORDS
    assert opened[0].closed
    assert [client.seeks for client in opened] == [[10], [10]]


def test_a_read_that_is_left_in_the_middle_costs_nothing(opened: list[Client]) -> None:
    ERRORS[0] = LogError("away")
    left = reading.read_range(SETTINGS, "orders", "id", 0, 10, END)
    assert next(left).offsets.tolist() == [10, 11, 12]
    left.close()
    with pytest.raises(LogError):
        list(reading.read_range(SETTINGS, "orders", "id", 0, 13, END))
    again = [int(o) for piece in reading.read_range(SETTINGS, "orders", "id", 0, 13, END) for o in piece.offsets]
    assert again == RECORDS[3:]
