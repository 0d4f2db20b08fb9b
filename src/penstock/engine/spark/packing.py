"""Files into a zip or a tar.gz whose bytes depend on their names and contents alone: no times, no owners, one order."""

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

Progress = Callable[[int, int], None]  # bytes done, bytes in all
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip can tell
_LEVEL = 1  # an archive is made often and read by every executor: what counts is how soon


@dataclass(frozen=True)
class Entry:
    """One file of a pack."""

    name: str  # where it stands in the pack, with /
    source: Path | bytes
    executable: bool = False

    @property
    def size(self) -> int:
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size

    def content(self) -> bytes:
        return self.source if isinstance(self.source, bytes) else self.source.read_bytes()

    @property
    def mode(self) -> int:
        return 0o755 if self.executable else 0o644


def files_below(directory: Path, under: str, leave: Callable[[str], bool] = lambda name: False) -> list[Entry]:
    """Every file of a directory, links followed, compiled Python and what `leave` says left out."""
    found = []
    for place, directories, names in os.walk(directory, followlinks=True):
        directories[:] = sorted(d for d in directories if d != "__pycache__" and not leave(f"{d}/"))
        for name in sorted(names):
            path = Path(place) / name
            if not name.endswith(".pyc") and not leave(name) and path.is_file():
                found.append(Entry(f"{under}/{path.relative_to(directory).as_posix()}", path, os.access(path, os.X_OK)))
    return found


def ordered(entries: Iterable[Entry], first: str) -> list[Entry]:
    """By name, each once (of two the later counts), the one called `first` in front: it can be read without reading the rest."""
    by_name = {entry.name: entry for entry in entries}
    return sorted(by_name.values(), key=lambda entry: (entry.name != first, entry.name))


def write_zip(path: Path, entries: list[Entry], on_progress: Progress) -> None:
    def write(file: Path) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as made:
            for entry in counted(entries, on_progress):
                info = zipfile.ZipInfo(entry.name, _LONG_AGO)
                info.external_attr, info.create_system = entry.mode << 16, 3
                info.compress_type = zipfile.ZIP_DEFLATED
                made.writestr(info, entry.content())

    _whole(path, write)


def write_tar(path: Path, entries: list[Entry], on_progress: Progress) -> None:
    def write(file: Path) -> None:
        with (
            file.open("wb") as raw,
            gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as made,
        ):
            for entry in counted(entries, on_progress):
                info = tarfile.TarInfo(entry.name)
                content = entry.content()
                info.size, info.mode = len(content), entry.mode
                made.addfile(info, io.BytesIO(content))

    _whole(path, write)


def counted(entries: list[Entry], on_progress: Progress) -> Iterable[Entry]:
    total = sum(entry.size for entry in entries)
    done = 0
    for entry in entries:
        yield entry
        done += entry.size
        on_progress(done, total)


def _whole(path: Path, write: Callable[[Path], None]) -> None:
    """Somebody may be reading the old one; and half a pack must not look like one."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(half)
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)
