"""The files of a partition at one moment: the newest manifest, and the segments behind it."""

from typing import NamedTuple

from penstock.errors import NotFound
from penstock.log.file.manifest import Manifest, read_manifest
from penstock.log.file.place import Place, SegmentName, named, newest_manifest


class Listing(NamedTuple):
    """`names`: segments that no cleaning has replaced. Whatever else lies there was left by a crash, and is not looked at."""

    manifest: Manifest
    names: list[SegmentName]
    acknowledged: list[SegmentName]  # those that have a file of acknowledgements

    @property
    def whole(self) -> bool:
        """Whether the numbers go on without a hole."""
        return [n.serial for n in self.names] == list(range(self.manifest.through + 1, self.manifest.through + 1 + len(self.names)))


def look(place: Place) -> Listing:
    """Looks again while a cleaning goes on: files are not listed all at one moment. A hole that stays is a missing file."""
    before: Listing | None = None
    while True:
        try:
            found = _looked(place)
        except NotFound:  # a newer manifest came and this one was removed
            continue
        if found.whole or found == before:
            return found
        before = found


def _looked(place: Place) -> Listing:
    files = place.storage.list(place.directory)
    number = newest_manifest(files)
    manifest = Manifest() if number is None else read_manifest(place, number)
    live = [name for name in named(files, "log") if name.serial > manifest.through]
    return Listing(manifest, live, [name for name in named(files, "acks") if name.serial > manifest.through])
