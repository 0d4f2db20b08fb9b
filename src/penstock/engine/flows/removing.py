"""Starting a flow over, and doing away with it. G31: killed anywhere in between it can be finished; nothing else is touched.

First the order is noted in the flow's directory; a flow with such a note does not start. Then all that it names goes, then the
rest of the directory, and last the note. Whoever asks again finds the note and finishes.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import orjson

from penstock.engine.diagnose.inspect import decisions_of
from penstock.engine.flows.belongings import Belonging, belongings, recorded
from penstock.engine.run.epoch.decision import REMOVING, Decisions
from penstock.engine.run.lock import held_lock, log_address
from penstock.errors import InUse, Mismatch, NotFound
from penstock.log.groups.port import FLOW
from penstock.log.port import Log
from penstock.sinks.port import nothing
from penstock.sinks.stores.search.index import DIRECTORY
from penstock.storage.local import LocalStorage
from penstock.views.directory import drop_view
from penstock.views.indexes import drop_index

What = Literal["reset", "drop"]
POINTS = (
    "removing.noted",
    "removing.group",
    "removing.topic",
    "removing.view",
    "removing.search",
    "removing.state",
    "removing.emptied",
)


@dataclass(frozen=True)
class Removal:
    """What is to go, as it is noted in the flow's directory."""

    what: What
    flow: str
    views: tuple[str, ...]
    topics: tuple[tuple[str, str], ...]  # name and id
    group: bool
    log: str  # where the topics are
    searches: tuple[str, ...] = ()  # files and directories of search indexes

    @classmethod
    def of(cls, what: What, flow: str, log: Log, things: Sequence[Belonging]) -> "Removal":
        views = tuple(thing.name for thing in things if thing.kind == "view")
        topics = tuple((thing.name, thing.id) for thing in things if thing.kind in ("topic", "late", "dead"))
        searches = tuple(thing.name for thing in things if thing.kind == "search")
        return cls(what, flow, views, topics, any(thing.kind == "group" for thing in things), log_address(log), searches)

    def with_rest_of(self, begun: "Removal") -> "Removal":
        """The same, and what an order that was cut short had not come to."""
        views = dict.fromkeys((*begun.views, *self.views))
        topics = dict.fromkeys((*begun.topics, *self.topics))
        searches = dict.fromkeys((*begun.searches, *self.searches))
        group = self.group or begun.group
        return replace(self, views=tuple(views), topics=tuple(topics), group=group, searches=tuple(searches))


@dataclass(frozen=True)
class Going:
    """What a reset or a drop takes, and what it leaves."""

    removal: Removal
    goes: tuple[Belonging, ...]
    stays: tuple[Belonging, ...]
    begun: str | None  # what was begun and cut short before, if anything

    @property
    def read(self) -> dict[str, tuple[str, ...]]:
        """Topics that go, and who else reads them."""
        return {thing.name: thing.readers for thing in self.goes if thing.readers}


def plan(home: Path, log: Log, flow: str, what: What, topics: bool) -> Going:
    """What would go. topics: those that the flow writes for others, too; its own, for late and dead rows, always go."""
    decisions = decisions_of(home, flow)
    begun = noted(decisions)
    _check_log(decisions, log, begun)
    found = belongings(home, log, flow)
    named = {name for name, _ in begun.topics} if begun else set()
    stay = {thing for thing in found if thing.kind == "store" or (thing.kind == "topic" and not topics and thing.name not in named)}
    goes = tuple(thing for thing in found if thing not in stay)
    removal = Removal.of(what, flow, log, goes)
    removal = removal.with_rest_of(begun) if begun else removal
    return Going(removal, goes, tuple(thing for thing in found if thing in stay), begun.what if begun else None)


def cut_off(home: Path, log: Log, flow: str) -> list[tuple[str, int]]:
    """Partitions of the inputs whose beginning retention has removed, and where they begin now: a flow that starts over does not
    see what was there before."""
    known: dict[str, str] = recorded(decisions_of(home, flow), "sources") or {}
    found = [log.topic(topic) for topic in sorted(set(known.values()) & set(log.topics()))]
    return [(f"{topic.spec.name}/{n}", end.first) for topic in found for n, end in sorted(topic.ends().items()) if end.first > 0]


def noted(decisions: Decisions) -> Removal | None:
    """The order that was begun and not finished."""
    raw = decisions.removing()
    if raw is None:
        return None
    lists = {"views": tuple(raw["views"]), "searches": tuple(raw.get("searches", ())), "topics": tuple(map(tuple, raw["topics"]))}
    return Removal(**raw | lists)


def _check_log(decisions: Decisions, log: Log, begun: Removal | None) -> None:
    """Topics are sought where the flow wrote them, or they would stay behind and stop its next start."""
    known, here = begun.log if begun else recorded(decisions, "log"), log_address(log)
    if known is not None and known != here:
        raise Mismatch(
            f"flow {decisions.flow} has its topics in another log",
            f"it ran over {known or 'the log of the home'}, this is {here or 'the log of the home'}",
            hint=f"say --log {known}" if known else "leave --log and PENSTOCK_LOG out",
        )


def carry_out(home: Path, log: Log, going: Going, force: bool = False, fail: Callable[[str], None] = nothing) -> None:
    """Does it. Held while the flow runs; InUse, without force, if others read topics that would go."""
    removal = going.removal
    if going.read and not force:
        raise InUse(
            f"others read what flow {removal.flow} writes",
            *(f"topic {topic}: {', '.join(names)}" for topic, names in going.read.items()),
            hint="they would have to start over, too (penstock flow reset); --force does it all the same"
            + (", --keep-topics leaves the topics as they are" if removal.what == "reset" else ""),
        )
    decisions = decisions_of(home, removal.flow)
    with ExitStack() as stack:
        stack.push(held_lock(decisions).__exit__)
        if noted(decisions) != removal:  # beside an older note, which holds until this one is there
            number = len(decisions.storage.list(REMOVING)) + 1
            decisions.storage.publish(f"{REMOVING}/{number:04d}", orjson.dumps(asdict(removal)))
        fail("removing.noted")
        _outputs(home, log, removal, fail)
        _directory(home, removal, decisions, fail)


def _outputs(home: Path, log: Log, removal: Removal, fail: Callable[[str], None]) -> None:
    if removal.group:
        with suppress(NotFound):
            log.groups().forget(FLOW + removal.flow)
        fail("removing.group")
    for name, id in removal.topics:
        with suppress(NotFound):
            if log.topic(name).id == id:  # else it is gone already, and somebody made another
                log.delete(name)
        fail("removing.topic")
    for view in removal.views:
        with suppress(NotFound):
            drop_view(home / "views", view)
        fail("removing.view")
    for index in removal.searches:
        drop_index(home / DIRECTORY / index)
        fail("removing.search")


def _directory(home: Path, removal: Removal, decisions: Decisions, fail: Callable[[str], None]) -> None:
    for path in sorted((home / "flows" / removal.flow).iterdir()):
        if path.name not in ("lock", REMOVING):
            decisions.storage.remove(path.name)
            fail("removing.state")
    fail("removing.emptied")
    decisions.storage.remove(REMOVING)
    if removal.what == "drop":
        LocalStorage(str(home / "flows")).remove(removal.flow)
