"""Processes that are members of one group, and the ledger of what they said: who owned what, and what was read and committed."""

import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from faults.group_members import LEASE
from faults.own_processes import OwnProcess
from penstock.log.file.log import FileLog
from penstock.log.groups.sqlite import SqliteGroups
from penstock.log.port import Topic, TopicSpec
from penstock.storage.local import LocalStorage
from waiting import until

SCRIPT = Path(__file__).with_name("group_members.py")
PARTITIONS = 6


@dataclass
class Owned:
    """One member's ownership of one partition, as far as it is certain; microseconds of the monotonic clock."""

    name: str
    start: int
    stop: int


@dataclass
class Story:
    """What one member said."""

    asked: list[int] = field(default_factory=list)
    beats: list[tuple[int, int, set[int]]] = field(default_factory=list)
    died: int = 2**62


class Members:
    """Starts and ends members, hears what they say, and watches the committed offsets all the while."""

    def __init__(self, root: Path, planted: str = "-") -> None:
        self.root = root / "log"
        self.topic: Topic = FileLog(LocalStorage(self.root)).create(TopicSpec("t", PARTITIONS, durability="os"))
        command = [sys.executable, str(SCRIPT), str(self.root), planted]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.groups = SqliteGroups(self.root / "groups.db")
        self.alive: dict[str, OwnProcess] = {}
        self.stories: dict[str, Story] = defaultdict(Story)
        self.read: set[tuple[int, int]] = set()
        self.committed: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self.said: dict[str, list[list[str]]] = defaultdict(list)
        self.started = 0
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)

    def start(self, kind: str = "plain") -> str:
        name = f"m{self.started}"
        self.started += 1
        assert self.process.stdin
        self.process.stdin.write(f"{name} {kind}\n")
        assert until(lambda: self.hear() or name in self.alive)
        return name

    def hear(self) -> bool:
        """Takes in what was said, and looks at the offsets; False, so that it can stand in a condition."""
        while not self._lines.empty():
            verb, name, *rest = self._lines.get().split()
            self.said[verb].append([name, *rest])
            if verb == "pid":
                self.alive[name] = OwnProcess(int(rest[0]))
            elif verb == "ask":
                self.stories[name].asked.append(int(rest[0]))
            elif verb == "own":
                owned = set() if rest[2] == "-" else set(map(int, rest[2].split(",")))
                self.stories[name].beats.append((int(rest[0]), int(rest[1]), owned))
            elif verb == "left":
                self.alive.pop(name, None)
            elif verb == "read":
                self.read |= {(int(rest[0]), int(offset)) for offset in rest[1:]}
        self.look()
        return False

    def look(self) -> None:
        """No committed offset ever moves back."""
        for held in self.groups.positions("t"):
            assert held.offset >= self.committed[held.partition], "a committed offset moved back"
            self.committed[held.partition] = held.offset

    def end(self, name: str, number: signal.Signals) -> None:
        """SIGTERM: it leaves in order. SIGKILL: it is gone at once."""
        self.alive.pop(name).send(number)  # unless it left by itself just now
        if number == signal.SIGKILL:
            self.stories[name].died = time.monotonic_ns() // 1000

    def append(self, rng: random.Random) -> None:
        count = rng.randint(1, 5)
        self.topic.append(rng.randrange(PARTITIONS), pa.record_batch({"value": pa.array([b"x"] * count, pa.binary())}))

    def caught_up(self) -> bool:
        self.hear()
        return self.committed == {number: end.next for number, end in self.topic.ends().items()}

    def close(self) -> None:
        for name in list(self.alive):
            self.end(name, signal.SIGKILL)
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()
        self._listener.join()
        assert self.process.stdout
        self.process.stdout.close()
        self.hear()
        self.groups.close()

    def check(self) -> None:
        """No partition had two owners, and nothing was committed that nobody read."""
        for partition, spans in self.ownership().items():
            for before, after in pairwise(spans):
                assert before.stop <= after.start, f"partition {partition} was owned twice: {before} and {after}"
        for partition, offset in self.committed.items():
            assert {(partition, at) for at in range(offset)} <= self.read, "committed and never read"

    def ownership(self) -> dict[int, list[Owned]]:
        """Per partition, from the answer that gave it to the question behind the last answer that still did; never beyond a lease
        or a death. Sorted by the start."""
        found: dict[int, list[Owned]] = defaultdict(list)
        for name, story in self.stories.items():
            for began, ended, owned in story.beats:
                next_asked = next((at for at in story.asked if at > began), 2**62)
                stop = min(began + round(LEASE * 1e6), story.died, next_asked)
                for partition in owned:
                    known = found[partition]
                    if known and known[-1].name == name and known[-1].stop == began:
                        known[-1].stop = stop
                    elif ended < stop:
                        known.append(Owned(name, ended, stop))
        return {partition: sorted(spans, key=lambda span: span.start) for partition, spans in found.items()}


def storm(members: Members, rng: random.Random, steps: int, most: int = 20) -> None:
    """Members join, leave and die while rows come in."""
    for _ in range(steps):
        act = rng.choice(["join", "join", "leave", "kill"]) if members.alive else "join"
        if act == "join" and len(members.alive) < most:
            members.start()
        elif act != "join":
            members.end(rng.choice(sorted(members.alive)), signal.SIGTERM if act == "leave" else signal.SIGKILL)
        for _ in range(rng.randint(1, 4)):
            members.append(rng)
        heard = len(members.said["own"])
        wanted = heard + rng.randint(0, len(members.alive) // 2)
        until(lambda wanted=wanted: members.hear() or len(members.said["own"]) >= wanted, 2)
