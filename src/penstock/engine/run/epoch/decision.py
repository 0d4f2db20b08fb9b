"""The decision of an epoch: one small file, made exclusively. It is the commit; everything else follows from it.

A flow's directory:

    incarnation          one life of this state; sinks know it
    generations/G        one start of a driver: who, where, when
    epochs/N             the decisions
    state/, staged/      files that decisions name
    removing/            only while the flow is reset or dropped
"""

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from penstock.core.time import NEVER
from penstock.engine.state.refs import RunRef, StagedRef
from penstock.errors import AlreadyThere, Damaged, DiskFull, LostRace, Mismatch, NotFound, Replaced, StorageError
from penstock.storage.port import Storage

FORMAT = 2  # 1: version 0.1, without `deltas`, and with its fingerprints
GENERATIONS = 16  # starts that are remembered
_AGAIN = "free some space and run again: a start looks at what is there"
REMOVING = "removing"  # notes of a reset or a drop that is under way, or was cut short


@dataclass(frozen=True)
class PartitionState:
    """How far one partition of a source is read."""

    next: int  # the offset to read next
    watermark: int = NEVER  # known of W at `next`: never more than it is
    floor: int = NEVER  # the greatest of the engine's own marks; where the log has no headers, of all marks read
    time: int = NEVER  # greatest plausible event time read (only where frame headers cannot say)


@dataclass(frozen=True)
class SourceState:
    topic_id: str
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)
    used: int = NEVER  # the frontier that the last epoch used

    def known(self) -> int:
        """The least W that any row still to come can have."""
        return min((p.watermark for p in self.partitions.values()), default=NEVER)


class EngineMark(NamedTuple):
    source: str
    partition: int
    offset: int
    time: int
    step: str = ""  # the enrich whose answers left it: it counts for that step alone; "": for whoever judges the rows behind it
    lifts: bool = False  # an end of input before it counts no longer, from here on


@dataclass(frozen=True)
class Decision:
    flow: str
    incarnation: str
    generation: int
    epoch: int
    clock: int
    fingerprint: str
    buckets: int
    sources: Mapping[str, SourceState]
    ranges: Mapping[str, Mapping[int, tuple[int, int]]]  # source -> partition -> [start, stop)
    marks: tuple[EngineMark, ...]
    frontiers: Mapping[str, int]  # F out of every step, as this epoch used it
    state: tuple[RunRef, ...]
    staged: tuple[StagedRef, ...]
    fates: Mapping[str, Mapping[str, int]]  # step -> fate -> rows, since the beginning
    rows: int = 0  # read in this epoch
    answered: Mapping[str, int] = field(default_factory=dict)  # step -> the mark that its answers have left on its table
    accounts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # source -> what its offsets held, since that is kept
    horizon: Mapping[str, Any] = field(default_factory=dict)  # of inputs that were ended: from when on the flow could go on
    kind: str = "epoch"  # or "reopen": no rows, and the end of its inputs is lifted
    deltas: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # step -> fate -> rows, in this epoch alone

    def files(self) -> set[str]:
        return {r.file for r in self.state} | {s.file for s in self.staged}

    def encode(self) -> bytes:
        sources = {
            name: vars(source) | {"partitions": {number: vars(state) for number, state in source.partitions.items()}}
            for name, source in self.sources.items()
        }
        fields = vars(self) | {"sources": sources}
        body = orjson.dumps(fields, default=list, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS)
        return b"penstock decision %d %08x\n" % (FORMAT, _checksum(FORMAT, body)) + body + b"\n"

    @staticmethod
    def decode(data: bytes, name: str, flow: str = "FLOW") -> "Decision":
        try:
            head, body = data.rstrip(b"\n").split(b"\n", 1)
            word, kind, version, crc = head.split(b" ")
            if (word, kind) != (b"penstock", b"decision") or int(crc, 16) != _checksum(int(version), body):
                raise ValueError("checksum")
            if int(version) > FORMAT:
                raise Mismatch(
                    f"the decision {name} of flow {flow} was written by a newer version of Penstock",
                    f"it has format {int(version)}, and this version reads up to {FORMAT}",
                    hint="run the flow with that version",
                )
            return _from_json(orjson.loads(body))
        except (ValueError, KeyError, TypeError):
            raise Damaged(
                f"the decision {name} is damaged",
                hint=f"restore the file from a copy; or start the flow over: penstock flow reset {flow}",
            ) from None


def _checksum(version: int, body: bytes) -> int:
    """Of the version, too, since there is more than one: a flipped bit in it must not look like another one."""
    return zlib.crc32(body, version if version > 1 else 0)


def _from_json(raw: dict[str, Any]) -> Decision:
    raw["sources"] = {
        name: SourceState(s["topic_id"], {int(p): PartitionState(**v) for p, v in s["partitions"].items()}, s["used"])
        for name, s in raw["sources"].items()
    }
    raw["ranges"] = {name: {int(p): (a, b) for p, (a, b) in r.items()} for name, r in raw["ranges"].items()}
    raw["marks"] = tuple(EngineMark(*m) for m in raw["marks"])
    raw["state"] = tuple(RunRef(*r) for r in raw["state"])
    raw["staged"] = tuple(StagedRef(*s) for s in raw["staged"])
    return Decision(**raw)


class Decisions:
    """The decisions of one flow, in its directory."""

    def __init__(self, storage: Storage, flow: str) -> None:
        self.storage, self.flow = storage, flow

    def removing(self) -> dict[str, Any] | None:
        """The order to reset or drop the flow that was begun and is not finished."""
        notes = self.storage.list(REMOVING)
        note: dict[str, Any] | None = orjson.loads(self.storage.read(f"{REMOVING}/{notes[-1]}").to_pybytes()) if notes else None
        return note

    def check_whole(self) -> None:
        """Mismatch if a reset or a drop of the flow was cut short: some of it is gone."""
        begun = self.removing()
        if begun:
            raise Mismatch(
                f"flow {self.flow} cannot start: a {begun['what']} of it was begun and not finished",
                hint=f"penstock flow {begun['what']} {self.flow} --yes finishes it",
            )

    def epochs(self) -> list[int]:
        return sorted(int(name) for name in self.storage.list("epochs") if name.isdigit())

    def last(self) -> Decision | None:
        """The newest decision. One that cannot be read is an error: a flow never starts anew by itself."""
        epochs = self.epochs()
        return self.read(epochs[-1]) if epochs else None

    def read(self, epoch: int) -> Decision:
        path = f"epochs/{epoch:012d}"
        return Decision.decode(self.storage.read(path).to_pybytes(), path, self.flow)

    def publish(self, decision: Decision) -> None:
        """4. Decide: exclusive and durable. Whoever comes second stops, and is told who won. Over a network a file system may say
        of our own file that it was there already, when its first answer was lost; the generation tells that it is ours.

        A driver that was replaced, or whose flow was reset, decides nothing: it is refused before anything else is looked at."""
        self.refuse_reset(decision.incarnation)
        self.refuse_replaced(decision.generation)
        try:
            self.storage.publish(f"epochs/{decision.epoch:012d}", decision.encode())
        except DiskFull as error:
            if decision.epoch in self.epochs():  # it is there, and whether it is on disk nobody knows: to be read anew
                what = f"epoch {decision.epoch} of flow {self.flow} is decided, but not yet on disk"
                raise StorageError(what, hint=_AGAIN) from error
            raise
        except AlreadyThere:
            winner = self.read(decision.epoch)
            if winner.encode() == decision.encode():
                return
            self.refuse_replaced(decision.generation)
            raise LostRace(
                f"another driver decided epoch {decision.epoch} of flow {self.flow}",
                f"it is generation {winner.generation}; this one is {decision.generation}",
                hint="only one driver may run a flow; this one stops, nothing is lost or doubled",
            ) from None

    def refuse_replaced(self, generation: int) -> None:
        """Raises Replaced, with who did it, if a later start has taken the flow."""
        newest = max((int(name) for name in self.storage.list("generations") if name.isdigit()), default=0)
        if newest > generation:
            owner = self.owner()
            raise Replaced(
                f"flow {self.flow} was replaced by process {owner.get('pid')} on {owner.get('host')} since {owner.get('since')}",
                f"that is start {newest}; this one is start {generation}",
                hint="this driver stops; the other one goes on, and nothing is lost or doubled",
            )

    def refuse_reset(self, incarnation: str) -> None:
        """Raises Replaced if the flow has another life by now, or none: it was reset or dropped, or is being."""
        try:
            now = self.storage.read("incarnation").to_pybytes().decode(errors="replace").strip()
        except NotFound:
            now = ""
        if now != incarnation or self.storage.list(REMOVING):
            raise Replaced(
                f"flow {self.flow} was reset or dropped while this driver was away",
                f"it has run as {incarnation}" + (f", and is {now} now" if now not in ("", incarnation) else ""),
                hint="this driver stops, and nothing of what it had begun is written; start the flow anew",
            )

    def forget(self, epoch: int) -> None:
        self.storage.remove(f"epochs/{epoch:012d}", durable=False)

    def incarnation(self, fresh: str) -> tuple[str, bool]:
        """The id of this life of the state, and whether it has just begun."""
        try:
            found = self.storage.read("incarnation").to_pybytes().decode(errors="replace").strip()
            if not re.fullmatch("[0-9a-f]{32}", found):
                raise Damaged(f"the file incarnation of flow {self.flow} is damaged", hint="restore it from a copy")
            return found, False
        except NotFound:
            if self.epochs():
                raise Damaged(
                    f"flow {self.flow} has decisions but no incarnation file",
                    hint="restore the file from a copy of the flow's directory",
                ) from None
            self.storage.publish("incarnation", fresh.encode() + b"\n")
            return fresh, True

    def generation(self, owner: Mapping[str, Any]) -> int:
        """Takes the next generation: every start has its own, and none is lower than one that has decided."""
        last = self.last()
        while True:
            taken = [int(name) for name in self.storage.list("generations") if name.isdigit()]
            mine = max([*taken, last.generation if last else 0]) + 1
            try:
                self.storage.publish(f"generations/{mine:012d}", orjson.dumps(owner))
            except AlreadyThere:
                continue
            for old in sorted(taken)[: -(GENERATIONS - 1)]:  # the newest stays: it is what the next start counts from
                self.storage.remove(f"generations/{old:012d}", durable=False)
            return mine

    def owner(self) -> dict[str, Any]:
        """Who took the last generation; nothing where the file cannot be read, for no result depends on it."""
        return next(self.starts(), {})

    def starts(self) -> Iterator[dict[str, Any]]:
        """What each start that is remembered has said of itself, the last one first."""
        for name in reversed(self.storage.list("generations")):
            try:
                yield orjson.loads(self.storage.read(f"generations/{name}").to_pybytes())
            except (NotFound, orjson.JSONDecodeError):
                yield {}
