"""Transactions that hang: the broker has ended them, and some of their partitions never learned of it.

A broker that is killed and started again ends what was open when it went, and drops the marker for a partition whose leader it does
not know yet (seen with Kafka 4.x). The records there stay open, hold back everybody who reads what is committed, and the next
commit of the same producer would commit them, too.

The last stable offset is that of the first record of an open transaction. A producer has one transaction at a time: if that record
is its own, so is every later one of its records, and if it has none there, nothing of its own is open.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.log.kafka.client import away, ends
from penstock.log.kafka.headers import END, SENDER, sender_of
from penstock.log.kafka.read.fetching import Fetched
from penstock.log.kafka.read.ranges import read_open
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.port import Sender
from penstock.log.producers import Producers

Partition = tuple[str, int]  # topic, as the broker calls it, and number
MARGIN = 5.0  # seconds beyond its time-out that a broker may take to end a transaction
_PAUSE = 0.05


class Leftover(NamedTuple):
    """The first record of a frame, or a stamp, whose transaction is open. Without a sender: a record that was to end others."""

    offset: int
    sender: Sender | None = None
    partition: int = -1  # of a stamp: the partition that it tells of
    base: int = -1  # and where its frame stands there


Pick = Callable[[Fetched], Iterator[Leftover]]


def left_open(settings: KafkaSettings, place: Partition, pick: Pick) -> list[Leftover]:
    """What of a producer's records is open in this partition, while it has no transaction under way. pick: its own among some
    records. Where somebody else's transaction hides what is open and what is not, it is waited for."""
    deadline = time.monotonic() + patience(settings)
    while True:
        end = ends(settings, [place], committed=False)[place]
        stable = ends(settings, [place])[place]
        found = [one for piece in read_open(settings, *place, stable, end) for one in pick(piece)] if stable < end else []
        if not found or found[0].offset == stable:
            return found
        if time.monotonic() > deadline:
            raise away(settings, f"a transaction before offset {found[0].offset} of {place[0]}/{place[1]} does not end")
        time.sleep(_PAUSE)


def frames_of(sender: str, id: str) -> Pick:
    """Picks the frames of a sender, and what was to end them under its transactional id."""

    def pick(piece: Fetched) -> Iterator[Leftover]:
        stamps = zip(*(found.tolist() for found in piece.headers.named(SENDER.encode())), strict=True)
        firsts = {row: found[0] for row, stamp in stamps if (found := sender_of(stamp)) and found[0].id == sender}
        rows, ids = piece.headers.named(END.encode())
        endings = {row for row, found in zip(rows.tolist(), ids.to_pylist(), strict=True) if found == id.encode()}
        for row in sorted(firsts.keys() | endings):
            yield Leftover(int(piece.offsets[row]), firsts.get(row))

    return pick


def stamps_of(topic_id: str, sender: str, id: str) -> Pick:
    """Picks the stamps of a sender of a topic, in the topic of stamps, and what was to end them under its transactional id."""
    ending = frames_of(sender, id)

    def pick(piece: Fetched) -> Iterator[Leftover]:
        found = list(ending(piece))
        for offset, key, value in zip(piece.offsets.tolist(), piece.keys.to_pylist(), piece.values.to_pylist(), strict=True):
            parts = (key or b"").decode(errors="replace").split("/", 2)
            if len(parts) == 3 and (parts[0], parts[2]) == (topic_id, sender) and value is not None:
                base, (stamp, _) = list(Producers.decode(value).places(sender).items())[-1]
                found.append(Leftover(offset, stamp, int(parts[1]), base))
        yield from sorted(found)

    return pick


def still_open(settings: KafkaSettings, places: Sequence[Partition]) -> list[Partition]:
    """Those that hold records whose transaction has not ended, whosoever it is."""
    whole = ends(settings, places, committed=False)
    stable = ends(settings, places)
    return [place for place in places if stable[place] < whole[place]]


def patience(settings: KafkaSettings) -> float:
    """Seconds after which a transaction that is still open hangs."""
    return settings.transaction_timeout / 1000 + MARGIN
