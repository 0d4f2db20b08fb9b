"""Setting the end of a partition right after a crash: cut what is torn, tell what is damaged.

Bytes behind the last acknowledged one may be torn: nobody was promised them. They are cut at the last whole frame, and the
cut bytes are kept in a file beside the segment. Bytes before it, and bytes in front of a whole frame that was written when
they were durable already, were promised: if they are not what was written, that is damage, and nothing is cut.
"""

from itertools import count

from penstock.errors import NotFound
from penstock.log.file.acks import Ack, State, encode_ack, open_acks, read_ack
from penstock.log.file.frame import SEGMENT_HEADER, Bad, decode_segment
from penstock.log.file.listing import Listing, look
from penstock.log.file.place import Place, SegmentName
from penstock.log.file.segment import Scan, damage, later_frame, scan


def settle(place: Place) -> tuple[Listing, Ack | None]:
    """Repairs the end of a partition; call it under the partition's lock. Its segments, and how far the last one goes; None if
    there is nothing behind what was cleaned."""
    found = look(place)
    refuse_missing(place, found)
    while found.names:
        ack = _settle_last(place, found.names[-1])
        if ack:
            return found, ack
        place.storage.remove(place.acks(found.names[-1]))
        place.storage.remove(place.log(found.names.pop()))
    return found, None


def extent(place: Place, name: SegmentName) -> Ack | None:
    """How far the last segment goes, by looking only; None if it was never begun."""
    return _examine(place, name)[0]


def _settle_last(place: Place, name: SegmentName) -> Ack | None:
    found, known, cut = _examine(place, name)
    if found == known and not cut:
        return found
    if cut:
        _keep(place, name, found.length if found else 0, cut)
    if found is None:
        return None
    if found != known or cut:
        cut_and_acknowledge(place, name, found)
    return found


def _examine(place: Place, name: SegmentName) -> tuple[Ack | None, Ack | None, bytes]:
    """How far the segment goes, what its last acknowledgement says, and the bytes that are to be cut."""
    known = read_ack(place, name)
    data = memoryview(place.storage.read(place.log(name)))
    if known and known.state != State.OPEN:
        return known, known, b""
    try:
        header = decode_segment(data)
    except Bad as bad:
        if (known and place.durable) or later_frame(data, 0):
            raise damage(place, name, name.base, 0, str(bad)) from bad
        return None, known, bytes(data)
    trusted = known.length if known else SEGMENT_HEADER
    found = scan(data, SEGMENT_HEADER, len(data), header.base, bodies_from=trusted)
    refuse_damage(place, name, data, found, known)
    return Ack(State.OPEN, found.at, found.next), known, bytes(data[found.at :])


def refuse_damage(place: Place, name: SegmentName, data: memoryview, found: Scan, known: Ack | None) -> None:
    """Raises Damaged where what was acknowledged is not whole."""
    if known and place.durable and found.at < known.length:
        why = found.why or f"the file ends there, {known.length} bytes were acknowledged"
        raise damage(place, name, found.next, found.at, why)
    if found.why and later_frame(data, found.at):
        raise damage(place, name, found.next, found.at, found.why)


def refuse_missing(place: Place, found: Listing) -> None:
    """A segment is durable before it is acknowledged: one that was acknowledged and is not there was taken away."""
    names = set(found.names)
    for name in found.acknowledged if place.durable else []:
        if name not in names and read_ack(place, name):
            raise damage(place, name, name.base, 0, "the file is missing, and it was acknowledged")


def _keep(place: Place, name: SegmentName, at: int, cut: bytes) -> None:
    """Keeps the cut bytes. Those that are kept already are left from a repair that was interrupted after this step."""
    for number in count():
        path = place.cut(name, at, number)
        try:
            if bytes(place.storage.read(path)) == cut:
                return
        except NotFound:
            place.storage.publish(path, cut)
            return


def cut_and_acknowledge(place: Place, name: SegmentName, ack: Ack) -> None:
    """Cuts what was never acknowledged, and says so on disk before anybody writes behind it."""
    appender = place.storage.append(place.log(name))
    try:
        if appender.size > ack.length:
            appender.truncate(ack.length)
        if place.durable:
            appender.sync()
    finally:
        appender.close()
    acks = open_acks(place, name)
    try:
        acks.write(encode_ack(ack))
    finally:
        acks.close()


def cut_bytes(place: Place) -> int:
    """How many bytes of torn frames were ever cut off this partition."""
    total = 0
    for name in place.storage.list(place.directory):
        if ".cut-" in name:
            try:
                total += place.storage.read(f"{place.directory}/{name}").size
            except NotFound:
                continue
    return total
