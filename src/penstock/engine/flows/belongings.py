"""What belongs to a flow: state, views, search indexes, the topics it writes, its own for late and dead rows, its group, stores."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.engine.diagnose.inspect import flows
from penstock.engine.execute.program import DEAD, LATE
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.letters import letter_topic
from penstock.errors import Damaged, NotFound, PenstockError
from penstock.log.file.log import FileLog
from penstock.log.file.store import directory_of
from penstock.log.groups.port import FLOW
from penstock.log.port import Log, Topic
from penstock.sinks.stores.search.fts5_tables import SUFFIX
from penstock.storage.local import LocalStorage
from penstock.views.directory import list_views
from penstock.views.indexes import files_of, index_paths
from penstock.views.search import SearchIndex
from penstock.views.view import View

SUFFIXES = {"search": SUFFIX, "tantivy": ""}  # what the names of indexes end with, by the kind of sink
Kind = Literal["state", "view", "search", "topic", "late", "dead", "group", "store"]


@dataclass(frozen=True)
class Belonging:
    """One thing of a flow."""

    kind: Kind
    name: str
    rows: int | None = None  # None: not known
    bytes: int | None = None
    id: str = ""  # of a topic
    readers: tuple[str, ...] = ()  # of a topic: the groups and other flows that read it
    emptied: str = ""  # of a store, which is outside the home: how people empty it


def belongings(home: Path, log: Log, flow: str) -> list[Belonging]:
    """All that a flow has here; nothing of any other flow's."""
    decisions = Decisions(LocalStorage(str(home / "flows" / flow)), flow)
    inside = [_state(home, decisions), *_views(home, decisions), *_indexes(home, decisions)]
    return [*inside, *_topics(home, log, decisions), *_group(log, flow), *_stores(decisions)]


def recorded(decisions: Decisions, what: str) -> Any:
    """What the newest start of the flow has noted of itself; None where it is of a version that noted nothing."""
    return decisions.owner().get(what)


def _state(home: Path, decisions: Decisions) -> Belonging:
    try:
        last = decisions.last()
    except (Damaged, NotFound):
        last = None
    rows = sum(ref.rows for ref in last.state) if last else None
    return Belonging("state", f"flows/{decisions.flow}", rows, size_of(home / "flows" / decisions.flow))


def _views(home: Path, decisions: Decisions) -> Iterator[Belonging]:
    """By what they say of themselves; those that cannot say it, by what the flow said."""
    named = {out["name"] for out in recorded(decisions, "outputs") or () if out["kind"] == "view"}
    for name in list_views(home / "views"):
        rows = None
        try:
            with View(home / "views", name) as view:
                if view.meta.flow != decisions.flow:
                    continue
                rows = view.count()
        except PenstockError:
            if name not in named:
                continue
        yield Belonging("view", name, rows, sum(size_of(home / "views" / f"{name}.db{part}") for part in ("", "-wal", "-shm")))


def _indexes(home: Path, decisions: Decisions) -> Iterator[Belonging]:
    """As views: by what they say of themselves, else by what the flow said."""
    outputs = recorded(decisions, "outputs") or ()
    named = {f"{out['name']}{SUFFIXES[out['kind']]}" for out in outputs if out["kind"] in SUFFIXES and "emptied" not in out}
    for path in index_paths(home):
        flow = flow_of_index(path)
        if flow == decisions.flow or (flow is None and path.name in named):
            yield Belonging("search", path.name, None, sum(map(size_of, files_of(path))))


def flow_of_index(path: Path) -> str | None:
    """Which flow writes a search index; None where it cannot say."""
    try:
        with SearchIndex(path) as index:
            return index.meta.flow
    except PenstockError:
        return None


def _stores(decisions: Decisions) -> Iterator[Belonging]:
    """What is outside the home, and keeps rows and a marker there."""
    for out in recorded(decisions, "outputs") or ():
        if "emptied" in out:
            yield Belonging("store", out["id"], emptied=out["emptied"])


def _topics(home: Path, log: Log, decisions: Decisions) -> Iterator[Belonging]:
    own = {letter_topic(decisions.flow, LATE): "late", letter_topic(decisions.flow, DEAD): "dead"}
    read = readers(home, log, decisions.flow)
    for name in log.topics():
        topic = log.topic(name)
        if topic.spec.writer != decisions.flow or foreign(log, topic, decisions):
            continue
        kind: Kind = own.get(name, "topic")  # type: ignore[assignment]
        yield Belonging(kind, name, _rows(topic), _topic_size(log, name), topic.id, tuple(sorted(read.get(name, ()))))


def foreign(log: Log, topic: Topic, decisions: Decisions) -> bool:
    """Whether a flow of the same name in another home has written a topic: several homes may share a broker."""
    if isinstance(log, FileLog):
        return False
    stamps = {id for partition in topic.ends() for id in topic.senders(partition) if id.startswith(f"{decisions.flow}/")}
    try:
        life = decisions.storage.read("incarnation").to_pybytes().decode(errors="replace").strip()
    except NotFound:
        return bool(stamps)
    return bool(stamps) and not any(id.endswith(f"/{life}") for id in stamps)


def readers(home: Path, log: Log, flow: str) -> Mapping[str, set[str]]:
    """Topic → who else reads it: groups of the log, and flows that say so."""
    found: dict[str, set[str]] = {}
    for state in log.groups().describe():
        if state.group != FLOW + flow:
            found.setdefault(state.topic, set()).add(_in_words(state.group))
    for other in flows(home):
        decisions = Decisions(LocalStorage(str(home / "flows" / other)), other)
        for topic in (recorded(decisions, "sources") or {}).values() if other != flow else ():
            found.setdefault(topic, set()).add(_in_words(FLOW + other))
    return found


def _in_words(group: str) -> str:
    return f"flow {group.removeprefix(FLOW)}" if group.startswith(FLOW) else f"group {group}"


def _group(log: Log, flow: str) -> Iterable[Belonging]:
    try:
        states = log.groups().describe(FLOW + flow)
    except NotFound:
        return ()
    return (Belonging("group", FLOW + flow),) if states else ()


def _rows(topic: Topic) -> int:
    ends = topic.ends()
    counted = getattr(topic, "rows", None)
    return sum(counted(number) if counted else end.next - end.first for number, end in ends.items())


def _topic_size(log: Log, name: str) -> int | None:
    if not isinstance(log, FileLog) or not isinstance(log.storage, LocalStorage):
        return None
    return size_of(Path(log.storage.root) / directory_of(name))


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a directory; 0 where there is none."""
    if path.is_file():
        return path.stat().st_size
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(directory, name)).st_size
            except FileNotFoundError:  # swept meanwhile
                continue
    return total
