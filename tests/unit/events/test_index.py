"""The index of a store says what the log says: however it was made, whatever became of its files."""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.core.time import FixedClock
from penstock.errors import VersionConflict
from penstock.events.event import Append, NewEvent
from penstock.events.expected import ANY, NEW
from penstock.events.on_log.rows import topic_spec
from penstock.events.on_log.run_files import RunFile, chain
from penstock.events.on_log.streams import LogStreams
from penstock.events.on_log.verifying import verify
from penstock.log.file.log import FileLog
from penstock.log.port import TopicSpec
from penstock.storage.memory import MemoryStorage

NOW = 1_700_000_000_000_000
DAY = 86_400_000_000


class Disk:
    """A store on a disk in memory, whose index is written every few events."""

    def __init__(self, spec: TopicSpec | None = None, files: dict[str, bytes] | None = None) -> None:
        self.clock = FixedClock(NOW)
        self.storage = MemoryStorage(files or {})
        self.log = FileLog(self.storage, self.clock, segment_size=4_000)
        if files is None:
            self.log.create(spec or topic_spec("carts"))
        self.streams = self.opened()

    def opened(self, flush: int = 5) -> LogStreams:
        return LogStreams(self.log.topic("carts"), self.clock, flush)

    def index_files(self) -> list[str]:
        return sorted(path for path in self.storage.files if path.endswith(".index"))

    def fill(self, events: int, seed: int = 0) -> None:
        rng = random.Random(seed)
        for number in range(events):
            append(self.streams, f"cart-{rng.randrange(7)}", f"{seed}-{number}")

    def copy(self, without: str = "") -> "Disk":
        files = {path: bytes(content) for path, content in self.storage.files.items()}
        return Disk(files={path: content for path, content in files.items() if not without or not path.endswith(without)})


def append(streams: LogStreams, stream: str, *ids: str, expected: object = ANY) -> int:
    events = tuple(NewEvent("Added", 1, "{}", id, None) for id in ids)
    return streams.append([Append(stream, events, expected)])[-1].version  # type: ignore[arg-type]


def answers(streams: LogStreams) -> dict[str, list[tuple[int, str]]]:
    """What a store says of its streams."""
    return {f"cart-{n}": [(e.version, e.id) for e in streams.read(f"cart-{n}")] for n in range(7)}


def sound(streams: LogStreams) -> bool:
    return verify(streams).wrong == []


def test_files_are_written_and_merged() -> None:
    disk = Disk()
    disk.fill(400)
    assert 0 < len(disk.index_files()) < 20
    assert sound(disk.streams)
    assert sound(disk.opened())


def test_an_index_that_is_read_from_files_is_the_one_that_wrote_them() -> None:
    disk = Disk()
    disk.fill(200)
    assert answers(disk.opened()) == answers(disk.streams) == answers(disk.copy(without=".index").streams)


def test_an_index_that_is_rebuilt_from_the_log_gives_the_same_answers() -> None:
    disk = Disk()
    disk.fill(200)
    rebuilt = disk.copy(without=".index")
    assert answers(rebuilt.streams) == answers(disk.streams)
    assert sound(rebuilt.streams)
    assert append(rebuilt.streams, "cart-1", "new") == append(disk.streams, "cart-1", "new")
    assert rebuilt.index_files()


def flips(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), 37):
        yield data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def test_a_damaged_file_is_noticed_and_made_again() -> None:
    disk = Disk()
    disk.fill(30)
    expected = answers(disk.streams)
    for path in disk.index_files():
        for damaged in [b"", bytes(disk.storage.files[path])[:-8], *flips(bytes(disk.storage.files[path]))]:
            other = disk.copy()
            other.storage.files[path][:] = damaged
            assert answers(other.streams) == expected
            assert sound(other.streams)


def test_files_of_a_longer_log_are_not_believed() -> None:
    disk = Disk()
    disk.fill(20)
    longer = disk.copy()
    longer.fill(40, seed=1)
    for path in longer.index_files():
        disk.storage.files[path] = longer.storage.files[path]
    opened = disk.opened()
    assert answers(opened) == answers(disk.streams)
    assert sound(opened)


def test_files_of_another_log_of_the_same_length_are_not_believed() -> None:
    """A disk that lost the end of the log, which then went on otherwise."""
    disk = Disk()
    disk.fill(20)
    other = disk.copy()
    other.fill(40, seed=1)
    disk.fill(40, seed=2)
    expected = answers(disk.copy(without=".index").streams)
    for path in disk.index_files():
        del disk.storage.files[path]
    for path in other.index_files():
        disk.storage.files[path] = other.storage.files[path]
    opened = disk.opened()
    assert answers(opened) == expected
    assert sound(opened)


def test_what_another_process_appended_is_known_before_the_next_append() -> None:
    disk = Disk()
    other = disk.opened()
    for number in range(20):
        assert append(disk.streams if number % 2 else other, "cart-1", f"{number}", expected=number) == number + 1
    with pytest.raises(VersionConflict):
        append(other, "cart-1", "x", expected=19)
    assert append(other, "cart-1", "7") == 8
    assert answers(disk.streams) == answers(other)


def test_several_processes_write_files_of_the_same_events() -> None:
    disk = Disk()
    others = [disk.opened(flush) for flush in (3, 4, 7)]
    for number in range(120):
        append(others[number % 3], f"cart-{number % 7}", f"{number}")
    assert all(sound(streams) for streams in [*others, disk.opened(), disk.streams])


def test_a_stream_whose_events_were_all_removed_is_a_new_one() -> None:
    disk = Disk(replace(topic_spec("carts"), retain=timedelta(days=1)))
    disk.fill(50)
    disk.clock.set(NOW + 2 * DAY)
    disk.log.clean("carts")
    for streams in (disk.streams, disk.opened(), disk.copy(without=".index").streams):
        assert streams.version("cart-1") == 0
        assert answers(streams)["cart-1"] == []
        assert sound(streams)
    assert append(disk.streams, "cart-1", "0-3", expected=NEW) == 1
    assert sound(disk.opened())


def test_what_retention_leaves_of_a_stream_keeps_its_versions() -> None:
    disk = Disk(replace(topic_spec("carts"), retain=timedelta(days=1)))
    append(disk.streams, "cart-1", "a", "b")
    disk.clock.set(NOW + 2 * DAY)
    for number in range(30):
        append(disk.streams, "cart-1", f"{number}")
    disk.log.clean("carts")
    for streams in (disk.streams, disk.opened(), disk.copy(without=".index").streams):
        assert streams.version("cart-1") == 32
        assert answers(streams)["cart-1"][-1] == (32, "29")
        assert sound(streams)


def test_rewritten_and_compacted_segments_change_no_answer() -> None:
    disk = Disk()
    disk.fill(100)
    expected = answers(disk.streams)
    assert any(cleaned.rewritten for cleaned in disk.log.clean("carts"))
    for streams in (disk.streams, disk.opened(), disk.copy(without=".index").streams):
        assert answers(streams) == expected
        assert sound(streams)
    compacted = Disk(replace(topic_spec("carts"), compact=True))
    compacted.fill(100)
    compacted.log.clean("carts")
    for streams in (compacted.streams, compacted.opened(), compacted.copy(without=".index").streams):
        assert {name: found[-1] for name, found in answers(streams).items()} == {n: f[-1] for n, f in expected.items()}
        assert sound(streams)


def test_files_follow_each_other_as_far_as_any_do() -> None:
    files = [RunFile(*n, "") for n in [(0, 10), (10, 20), (0, 15), (15, 40), (20, 30), (50, 60)]]
    assert [f[:2] for f in chain(files, 0)] == [(0, 15), (15, 40)]
    assert [f[:2] for f in chain(files[1:], 12)] == [(0, 15), (15, 40)]
    assert [f[:2] for f in chain(files[:2], 12)] == [(10, 20)]
    assert chain(files, 45) == []
    assert chain([], 0) == []


def test_events_that_have_no_partition_of_their_own_are_not_appended_together() -> None:
    disk = Disk(topic_spec("carts", 3))
    names = [f"cart-{number}" for number in range(7)]
    for name in names:
        append(disk.streams, name, "a", "b")
    assert {disk.streams.partition_of(name) for name in names} == {0, 1, 2}
    assert all(disk.streams.version(name) == 2 for name in names)
    assert sound(disk.opened())
