"""Two processes share three partitions; one is killed, and the other goes on from exactly the offsets that were committed."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.main import run
from penstock.log.groups.port import GroupState
from penstock.log.open import open_log
from waiting import until

HERE = Path(__file__).parent
READ = re.compile(r"(?P<name>\w+) read (?P<partition>\d): (?P<first>\d+) to (?P<last>\d+)")


class Member:
    """A process, and what it said it read: partition, first and last offset."""

    def __init__(self, name: str) -> None:
        command = [sys.executable, str(HERE / "member.py"), name, "1 second"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.read: list[tuple[int, int, int]] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            said = READ.match(line)
            assert said, line
            self.read.append((int(said["partition"]), int(said["first"]), int(said["last"])))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._listener.join()
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    settings = ["--partitions", "3", "--partition-by", "site", "--time", "at", "--schema", "site long, page string, at timestamp"]
    assert run(["topic", "create", "page-views", *settings]) == 0


@pytest.fixture
def members(home: None) -> Iterator[list[Member]]:
    made: list[Member] = []
    yield made
    for member in made:
        member.kill()


def produce(tmp_path: Path, *counts: int) -> None:
    lines = subprocess.run([sys.executable, str(HERE / "views.py"), *map(str, counts)], check=True, capture_output=True).stdout
    (tmp_path / "views.jsonl").write_bytes(lines)
    assert run(["topic", "produce", "page-views", str(tmp_path / "views.jsonl")]) == 0


def state() -> GroupState | None:
    return next((found for found in open_log().groups().describe() if found.group == "web-analytics"), None)


def shared_by(count: int) -> bool:
    now = state()
    return (
        now is not None and len({part.owner for part in now.partitions} - {None}) == count and all(p.owner for p in now.partitions)
    )


def offsets() -> list[int]:
    now = state()
    return [part.offset for part in now.partitions] if now else []


def test_the_other_member_goes_on_from_exactly_the_committed_offsets(tmp_path: Path, members: list[Member]) -> None:
    members += [Member("alice"), Member("bob")]
    assert until(lambda: shared_by(2))
    produce(tmp_path, 100, 80, 90)
    assert until(lambda: offsets() == [100, 80, 90])
    dead, heir = members
    assert {partition for partition, _, _ in dead.read} | {partition for partition, _, _ in heir.read} == {0, 1, 2}
    before = len(heir.read)
    dead.kill()
    members.remove(dead)
    assert offsets() == [100, 80, 90]
    produce(tmp_path, 10, 20, 30)
    assert until(lambda: offsets() == [110, 100, 120])
    assert until(lambda: shared_by(1))
    assert until(lambda: sum(last - first + 1 for _, first, last in heir.read[before:]) >= 60)
    firsts: dict[int, int] = {}
    for partition, first, _ in heir.read[before:]:
        firsts.setdefault(partition, first)
    assert firsts == {0: 100, 1: 80, 2: 90}
    assert sum(last - first + 1 for _, first, last in heir.read[before:]) == 60, "no row twice"
