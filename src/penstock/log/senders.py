"""What a partition remembers of its producers, kept beside each segment as it was when the segment was begun.

The file only saves time: where it is missing or damaged, the same is found by reading the headers of all frames."""

from crc32c import crc32c

from penstock.errors import NotFound
from penstock.log.acks import Ack
from penstock.log.place import Place, SegmentName
from penstock.log.port import Frame, Sender
from penstock.log.producers import Producers
from penstock.log.reader import PartitionReader


def read_senders(place: Place, names: list[SegmentName], ack: Ack) -> Producers:
    """The producers at the end of a settled partition."""
    reader = PartitionReader(place)
    kept = _kept(place, names[-1]) if len(names) > 1 else None
    reader.take(names[-1:] if kept else names, ack)
    producers = kept or Producers()
    producers.remember_all(reader.frames(0, None))
    return producers


def senders_of(place: Place, reader: PartitionReader) -> Producers:
    """The producers at the end of a partition, as far as the reader has taken it in."""
    names = reader.names
    kept = _kept(place, names[-1]) if len(names) > 1 else None
    producers = kept or Producers()
    if names:
        producers.remember_all(reader.frames(names[-1 if kept else 0].base, None))
    return producers


def write_senders(place: Place, name: SegmentName, producers: Producers) -> None:
    data = producers.encode()
    place.storage.remove(place.senders(name))  # a roll that was interrupted may have left an older one
    place.storage.publish(place.senders(name), crc32c(data).to_bytes(4, "little") + data)


def find_frame(place: Place, names: list[SegmentName], ack: Ack, sender: Sender) -> Frame | None:
    """The newest frame with this stamp, looked for in the whole partition."""
    reader = PartitionReader(place)
    reader.take(names, ack)
    stamp = (sender.id, sender.epoch, sender.sequence)
    return next((f for f in reversed(reader.frames(0, None)) if f.sender and f.sender[:3] == stamp), None)


def _kept(place: Place, name: SegmentName) -> Producers | None:
    try:
        data = bytes(place.storage.read(place.senders(name)))
        return Producers.decode(data[4:]) if crc32c(data[4:]).to_bytes(4, "little") == data[:4] else None
    except (NotFound, ValueError, KeyError, TypeError):
        return None
