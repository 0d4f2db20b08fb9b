"""What a partition remembers of its producers, kept beside each segment as it was when the segment was begun.

The file only saves time: where it is missing or damaged, the same is found by reading the headers of all frames, beginning with
what the last cleaning knew: rewritten frames no longer say who sent them."""

from crc32c import crc32c

from penstock.core.time import FOREVER
from penstock.errors import Damaged, NotFound
from penstock.log.file.acks import Ack
from penstock.log.file.listing import Listing
from penstock.log.file.manifest import Manifest
from penstock.log.file.place import Place, SegmentName
from penstock.log.file.reader import PartitionReader
from penstock.log.file.segment import Segment
from penstock.log.port import Frame, Sender
from penstock.log.producers import Producers


def read_senders(place: Place, found: Listing, ack: Ack) -> Producers:
    """The producers at the end of a settled partition."""
    reader = PartitionReader(place)
    reader.take(found, ack)
    return senders_of(place, reader)


def senders_of(place: Place, reader: PartitionReader) -> Producers:
    """The producers at the end of a partition, as far as the reader has taken it in."""
    live = reader.live
    kept = _kept(place.senders(live[-1].name), place) if live and live[-1].name.serial else None
    if kept:
        kept.remember_all(live[-1].frames(live[-1].name.base, FOREVER))
        return kept
    producers = cleaned_senders(place, reader.manifest)
    producers.remember_all(reader.frames(reader.manifest.tail.next, None))
    return producers


def senders_behind(place: Place, manifest: Manifest, segments: list[Segment], behind: SegmentName | None) -> Producers:
    """The producers behind these segments, which follow what was cleaned; `behind` is the next one, if it was begun."""
    kept = _kept(place.senders(behind), place) if behind else None
    if kept:
        return kept
    producers = cleaned_senders(place, manifest)
    for segment in segments:
        producers.remember_all(segment.frames(segment.name.base, FOREVER))
    return producers


def cleaned_senders(place: Place, manifest: Manifest) -> Producers:
    """The producers as the last cleaning knew them; Damaged if nobody knows any more."""
    if manifest.senders is None:
        return Producers()
    files = [place.cleaned_senders(manifest.senders), place.senders(SegmentName(manifest.tail.next, manifest.through + 1))]
    for file in files:
        kept = _kept(file, place)
        if kept:
            return kept
    raise Damaged(f"{place} is damaged: what its producers sent cannot be read", files[0], hint="restore the file from a copy")


def write_senders(place: Place, name: SegmentName, producers: Producers) -> None:
    place.storage.remove(place.senders(name))  # a roll that was interrupted may have left an older one
    place.storage.publish(place.senders(name), encoded_senders(producers))


def encoded_senders(producers: Producers) -> bytes:
    data = producers.encode()
    return b"".join((crc32c(data).to_bytes(4, "little"), data))


def find_frame(reader: PartitionReader, sender: Sender) -> Frame | None:
    """The newest frame with this stamp, looked for in all of the partition that was not rewritten."""
    stamp = (sender.id, sender.epoch, sender.sequence)
    frames = reader.frames(reader.manifest.tail.next, None)
    return next((f for f in reversed(frames) if f.sender and f.sender[:3] == stamp), None)


def _kept(path: str, place: Place) -> Producers | None:
    try:
        data = bytes(place.storage.read(path))
        return Producers.decode(data[4:]) if crc32c(data[4:]).to_bytes(4, "little") == data[:4] else None
    except (NotFound, ValueError, KeyError, TypeError):
        return None
