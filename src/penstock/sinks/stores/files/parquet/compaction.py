"""Small Parquet files become few large ones, and deletes are applied, while drivers write and readers read on."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import log

import pyarrow as pa

from penstock.sinks.stores.files.parquet.files import read_deletes, read_rows, remaining, write_file
from penstock.sinks.stores.files.parquet.manifest import (
    DATA,
    DELETES,
    MANIFESTS,
    SEQUENCE,
    File,
    Manifest,
    Manifests,
    Replaced,
    without,
)
from penstock.storage.port import Storage

TARGET = 64 << 20  # bytes: a file of this size or more is not merged with others
FEWEST = 8  # files of about one size that are merged
_STEP = 8  # what counts as about one size: within a factor of this
_SMALLEST = 64 << 10  # bytes: all files below are of one size
_SHARE = 4  # deletes are applied when there is one for so many rows
_LOCK = f"{MANIFESTS}.lock"


@dataclass(frozen=True)
class Merges:
    """What is to be done: each group of data files becomes one file, without what was deleted; so do all deletes, if they shall,
    where they still apply to a file."""

    groups: tuple[tuple[File, ...], ...] = ()
    deletes: bool = False

    def __bool__(self) -> bool:
        return bool(self.groups) or self.deletes

    def replaced(self, base: Manifest) -> set[str]:
        """The files of deletes that go."""
        return {file.path for file in base.deletes} if self.deletes else set()


def planned(manifest: Manifest) -> Merges:
    """Rows are rewritten a number of times that grows with the logarithm of their count, as in an LSM tree."""
    deleted, rows = sum(file.rows for file in manifest.deletes), sum(file.rows for file in manifest.data)
    many = len(manifest.deletes) >= FEWEST
    if many and deleted * _SHARE >= rows:
        return everything(manifest)
    small = [file for file in manifest.data if file.bytes < TARGET]
    groups = [group for group in _grouped(small, _size) if len(group) >= FEWEST]
    return Merges(tuple(part for group in groups for part in _filled(group)), many)


def everything(manifest: Manifest) -> Merges:
    """All deletes applied; small files of a partition together, up to the size that is aimed at."""
    last = max((file.sequence for file in manifest.deletes), default=-1)
    touched = [file for file in manifest.data if file.sequence < last or file.bytes < TARGET]
    groups = [part for group in _grouped(touched, lambda file: 0) for part in _filled(group)]
    return Merges(tuple(group for group in groups if len(group) > 1 or group[0].sequence < last), bool(manifest.deletes))


def compact(storage: Storage, plan: Callable[[Manifest], Merges], now: float) -> bool:
    """Does what the plan says of the newest manifest, as one new version. False if there is nothing to do, or somebody is at it.

    The new files hold what the old ones hold as of one sequence number, and get it as theirs: later deletes apply to them. A
    driver that commits meanwhile is not disturbed; its commit and this one follow each other in either order."""
    with storage.lock(_LOCK, wait=False) as held:
        manifests = Manifests(storage)
        base = manifests.newest() if held else None
        merges = plan(base) if base else Merges()
        if base is None or not merges:
            return False
        data, deletes = _merged(storage, base, merges)
        old = {file.path for group in merges.groups for file in group} | merges.replaced(base)

        def changed(newest: Manifest) -> Manifest:
            return replace(
                newest,
                data=(*data, *without(newest.data, old)),
                deletes=(*deletes, *without(newest.deletes, old)),
                replaced=(*newest.replaced, *(Replaced(path, now) for path in sorted(old))),
            )

        return manifests.change(base, changed) is not None


def forget(storage: Storage, seconds: float, now: float) -> None:
    """Removes files that were replaced longer ago, and manifests behind the newest ones."""
    manifests = Manifests(storage)
    newest = manifests.newest()
    expired = {each.path for each in newest.replaced if each.at < now - seconds} if newest else set()
    if newest and expired:
        newest = manifests.change(
            newest, lambda base: replace(base, replaced=tuple(each for each in base.replaced if each.path not in expired))
        )
        for path in expired:
            storage.remove(path, durable=False)
    if newest:
        manifests.sweep(newest)


def sweep_orphans(storage: Storage) -> None:
    """Removes files that no manifest names: of attempts that failed. Called by a driver behind a commit of its own and before it
    writes again: whoever was about to commit before it fails, and whoever compacts holds the lock."""
    with storage.lock(_LOCK, wait=False) as held:
        if not held:
            return
        named = set[str]().union(*(manifest.paths for manifest in Manifests(storage).all()))
        for path in [*_below(storage, DATA), *_below(storage, DELETES)]:
            if path not in named:
                storage.remove(path, durable=False)


def _merged(storage: Storage, base: Manifest, merges: Merges) -> tuple[list[File], list[File]]:
    """The new files of data and of deletes."""
    deletes = read_deletes(storage, base.deletes, base.key) if base.deletes else None
    data = []
    for group in merges.groups:
        tables = [read_rows(storage, file, base.schema) for file in group]
        if deletes is not None:
            tables = [remaining(rows, file.sequence, deletes, base.key) for rows, file in zip(tables, group, strict=True)]
        rows = pa.concat_tables(tables)
        if rows.num_rows:
            data.append(write_file(storage, DATA, rows, base.sequence, group[0].partition))
    if deletes is None or not merges.deletes:
        return data, []
    untouched = without(base.data, {file.path for group in merges.groups for file in group})
    last = max(file.sequence for file in base.deletes)
    if all(file.sequence >= last for file in untouched):
        return data, []
    fields = [*(base.schema.arrow.field(name) for name in base.key), pa.field(SEQUENCE, pa.int64())]
    return data, [write_file(storage, DELETES, deletes.to_arrow().cast(pa.schema(fields)), last)]


def _grouped(files: Iterable[File], size: Callable[[File], int]) -> list[tuple[File, ...]]:
    """Files of one partition and about one size."""
    groups: dict[tuple[str, int], list[File]] = {}
    for file in files:
        groups.setdefault((file.partition, size(file)), []).append(file)
    return [tuple(group) for group in groups.values()]


def _size(file: File) -> int:
    return int(log(file.bytes / _SMALLEST, _STEP)) + 1 if file.bytes > _SMALLEST else 0


def _filled(group: tuple[File, ...]) -> Iterator[tuple[File, ...]]:
    """Parts of the group that are not larger together than is aimed at, or one file each."""
    part: list[File] = []
    for file in group:
        if part and sum(other.bytes for other in part) + file.bytes > TARGET:
            yield tuple(part)
            part = []
        part.append(file)
    yield tuple(part)


def _below(storage: Storage, directory: str) -> Iterator[str]:
    """Every file in a directory and its partitions, whose names have an equals sign."""
    for name in storage.list(directory):
        if "=" in name:
            yield from _below(storage, f"{directory}/{name}")
        else:
            yield f"{directory}/{name}"
