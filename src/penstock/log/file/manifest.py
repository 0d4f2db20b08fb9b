"""What cleaning made of the old end of a partition: which offset is the first, and which files replace the segments up to a number.

One file, published under the next number once everything it names is durable; before that nothing is removed, so a crash leaves
either the old partition or the new one. Reasons: docs/adr/0007-cleaning.md.
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson
from crc32c import crc32c

from penstock.errors import Damaged
from penstock.log.file.place import Place, SegmentName
from penstock.log.stamp import Tail

FORMAT = 1
_CRC = 8  # hexadecimal digits of the checksum, before the line break


@dataclass(frozen=True)
class Part:
    """A rewritten segment, and what is known behind it."""

    base: int
    serial: int  # of the last segment that it replaces
    cleaning: int  # the number of the cleaning that wrote it
    length: int
    rows: int
    tail: Tail

    @property
    def name(self) -> SegmentName:
        return SegmentName(self.base, self.serial)

    @property
    def end(self) -> int:
        return self.tail.next


@dataclass(frozen=True)
class Lost:
    """What retention removed although a reader had not read it."""

    reader: str
    first: int
    end: int  # the offset behind it
    at: int  # microseconds


@dataclass(frozen=True)
class Manifest:
    """The partition behind the segment `through` is what its files say; up to it, what stands here."""

    number: int = 0  # 0: nothing was ever cleaned
    first: int = 0
    through: int = -1
    length: int = 0  # of the segment `through`, as the one behind it knows it
    tail: Tail = field(default_factory=Tail)
    parts: tuple[Part, ...] = ()
    senders: int | None = None  # the cleaning that wrote what producers sent up to here
    compacted: tuple[tuple[int, int], ...] = ()  # (offset, time): what lies before the offset was compacted first at that time
    lost: tuple[Lost, ...] = ()
    keyless: int = 0  # rows without a key that compaction met


def encode_manifest(manifest: Manifest, place: Place) -> bytes:
    fields = {"format": FORMAT, "topic": place.id, "partition": place.partition} | asdict(manifest)
    body = orjson.dumps(fields, option=orjson.OPT_INDENT_2)
    return b"%08x\n" % crc32c(body) + body


def read_manifest(place: Place, number: int) -> Manifest:
    """NotFound if a newer one took its place; Damaged if it is not what was written."""
    data = bytes(place.storage.read(place.manifest(number)))
    try:
        if data[: _CRC + 1] != b"%08x\n" % crc32c(data[_CRC + 1 :]):
            raise ValueError("it does not match its checksum")
        return _decoded(orjson.loads(data[_CRC + 1 :]), place, number)
    except (ValueError, KeyError, TypeError) as error:
        what = f"{place} is damaged: the record of its last cleaning cannot be read"
        raise Damaged(what, f"{place.manifest(number)}: {error}", hint="restore the file from a copy") from error


def _decoded(fields: dict[str, Any], place: Place, number: int) -> Manifest:
    mine = (FORMAT, place.id, place.partition, number)
    if (fields.pop("format"), fields.pop("topic"), fields.pop("partition"), fields["number"]) != mine:
        raise ValueError("it belongs to another place")
    parts = tuple(Part(**(part | {"tail": Tail(**part["tail"])})) for part in fields["parts"])
    return replace(
        Manifest(**fields),
        tail=Tail(**fields["tail"]),
        parts=parts,
        compacted=tuple((offset, at) for offset, at in fields["compacted"]),
        lost=tuple(Lost(**lost) for lost in fields["lost"]),
    )
