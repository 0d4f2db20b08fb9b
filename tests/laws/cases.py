"""Random cases: what is in the log, what the flow does, how the run is cut. How a case is executed is not known here."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .reference.log import Entry, Mark, Source
from .reference.steps import (
    CONDITIONS,
    Alert,
    AlertTable,
    Count,
    Enrich,
    Join,
    Running,
    Session,
    Sliding,
    Slim,
    Step,
    Told,
    Union,
    Where,
    Window,
)
from .reference.values import FOREVER

ALL = 10**9  # read to the end


class Node(NamedTuple):
    name: str
    step: Step
    inputs: tuple[str, ...]  # names of sources or nodes; "x.late" are the rows that x diverted


@dataclass(frozen=True)
class SourceCut:
    """What one epoch reads of one source."""

    counts: tuple[int, ...]  # entries per partition, at most
    see: frozenset[int] = frozenset()  # partitions found by now
    idle: frozenset[int] = frozenset()  # partitions excused: marked with the lowest watermark of the busy ones
    marks: tuple[tuple[int, int], ...] = ()  # (partition, T) put by the engine: delay=, the end of input
    age: str = "headers"  # how old the F is that the epoch uses: headers (after what it reads), previous (before), older


@dataclass(frozen=True)
class EpochCut:
    flow: int  # which flow runs: 1 reads the topic that 0 writes
    sources: dict[str, SourceCut]
    lost: dict[str, SourceCut] | None = None  # an attempt before it, cut otherwise, that crashed before its decision
    slices: int = 1  # into how many slices the rows of a port are cut for `prepare`
    buckets: int = 1


@dataclass
class Case:
    name: str
    seed: int
    sources: list[Source]
    flows: list[list[Node]]
    topic_partitions: int
    cuts: list[EpochCut] = field(default_factory=list)
    fanout: int = 8  # runs of state that are merged into one
    slot: int = 4  # width of a slot of the join's state

    def __str__(self) -> str:
        lines = [f"case {self.name!r}, seed {self.seed} (fanout {self.fanout}, slot {self.slot})"]
        lines += [f"  source {s.name} lateness {s.lateness} future {s.future}: {s.partitions}" for s in self.sources]
        lines += [f"  flow {i} {node}" for i, nodes in enumerate(self.flows) for node in nodes]
        return "\n".join(lines + [f"  {cut}" for cut in self.cuts])


def final(rng: random.Random) -> str:
    return rng.choice(("divert", "ignore"))


def small(rng: random.Random) -> int:
    return rng.randrange(1, 6)


HOW = ("inner", "left", "right", "full", "semi", "anti")


def a_join(rng: random.Random, how: str | None = None, where: str | None = None) -> Join:
    lo = rng.randrange(-4, 4)
    return Join(lo, lo + rng.randrange(5), how or rng.choice(HOW), final(rng), where)


def a_join_where(rng: random.Random) -> Join:
    return a_join(rng, where=rng.choice(list(CONDITIONS)))


def any_join(rng: random.Random) -> Join:
    return a_join_where(rng) if rng.random() < 0.3 else a_join(rng)


def a_window(rng: random.Random, every_aggregate: bool = False) -> Window:
    return Window(small(rng), final(rng), every_aggregate)


def a_hop(rng: random.Random, every_aggregate: bool = False) -> Window:
    """Overlapping, side by side or with gaps; sizes that are no multiple of the distance too."""
    return Window(small(rng) + rng.randrange(3), final(rng), every_aggregate, every=small(rng), offset=rng.choice((0, 0, 1, 2)))


def a_changing_window(rng: random.Random) -> Window:
    late = rng.choice(("divert", "ignore", "correct", "correct"))
    emit = rng.choice(("final", "updates")) if late == "correct" else "updates"
    size, every, offset = small(rng) + rng.randrange(2), rng.choice((0, 0, small(rng))), rng.choice((0, 0, 1))
    return Window(size, late, every=every, offset=offset, allowed=rng.randrange(9), emit=emit)


def a_session(rng: random.Random, changing: bool = False) -> Session:
    late = rng.choice(("divert", "ignore", "correct", "correct")) if changing else final(rng)
    emit = "final" if not changing or (late == "correct" and rng.random() < 0.5) else "updates"
    longest = rng.choice((None, None, small(rng), small(rng) + 5))
    return Session(small(rng), longest, late, rng.randrange(9) if late == "correct" else 0, emit)


def alerts_over(rng: random.Random, changing: Window | Session | Running) -> list[Node]:
    """A table of alerts, and what is told of it."""
    every = rng.choice((None, None, small(rng)))
    alerts = AlertTable(changing, every)
    return [Node("w", changing, (S,)), Node("table", alerts, ("w",)), Node("out", Told(changing, every), ("table",))]


def an_enrich(rng: random.Random, *, correct: bool = False) -> Enrich:
    how, wait, history = rng.choice(("left", "left", "inner")), rng.choice((None, 0, 1, 3)), rng.choice((0, 2, 5, None))
    return Enrich("event", how, small(rng) - 1 if correct else None, wait, history)


S, T, TABLE = "stream", "stream2", "table"
Make = Callable[[random.Random], list[Node]]


# name -> (sources, nodes of the flow, nodes of a second flow over the topic that the last node of the first writes)
PLANS: dict[str, tuple[tuple[str, ...], Make, Make | None]] = {
    "tumbling": ((S,), lambda g: [Node("out", a_window(g, every_aggregate=g.random() < 0.4), (S,))], None),
    "join-inner": ((S, T), lambda g: [Node("out", a_join(g, "inner"), (S, T))], None),
    "join-left": ((S, T), lambda g: [Node("out", a_join(g, "left"), (S, T))], None),
    "join-right": ((S, T), lambda g: [Node("out", a_join(g, "right"), (S, T))], None),
    "join-full": ((S, T), lambda g: [Node("out", a_join(g, "full"), (S, T))], None),
    "join-semi": ((S, T), lambda g: [Node("out", a_join(g, "semi"), (S, T))], None),
    "join-anti": ((S, T), lambda g: [Node("out", a_join(g, "anti"), (S, T))], None),
    "join-where": ((S, T), lambda g: [Node("out", a_join_where(g), (S, T))], None),
    "hopping": ((S,), lambda g: [Node("out", a_hop(g, every_aggregate=g.random() < 0.2), (S,))], None),
    "changing": ((S,), lambda g: [Node("out", a_changing_window(g), (S,))], None),
    "session": ((S,), lambda g: [Node("out", a_session(g), (S,))], None),
    "changing-session": ((S,), lambda g: [Node("out", a_session(g, changing=True), (S,))], None),
    "sliding": ((S,), lambda g: [Node("out", Sliding(small(g), final(g)), (S,))], None),
    "count": ((S,), lambda g: [Node("out", Count(g.randrange(1, 4), final(g)), (S,))], None),
    "alert": ((S,), lambda g: [Node("out", Alert(g.choice((None, small(g))), final(g)), (S,))], None),
    "alert-over-join": (
        (S, T),
        lambda g: [
            Node("join", any_join(g), (S, T)),
            Node("slim", Slim(), ("join",)),
            Node("out", Alert(g.choice((None, small(g))), final(g)), ("slim",)),
        ],
        None,
    ),
    "alert-over-changing": ((S,), lambda g: alerts_over(g, a_changing_window(g)), None),
    "alert-over-sessions": ((S,), lambda g: alerts_over(g, a_session(g, changing=True)), None),
    "alert-over-running": ((S,), lambda g: alerts_over(g, Running(g.choice((None, small(g))))), None),
    "sliding-over-join": (
        (S, T),
        lambda g: [
            Node("join", any_join(g), (S, T)),
            Node("slim", Slim(), ("join",)),
            Node("out", Sliding(small(g), final(g)), ("slim",)),
        ],
        None,
    ),
    "join-over-count": (
        (S, T),
        lambda g: [
            Node("w1", Count(g.randrange(1, 4), final(g)), (S,)),
            Node("s1", Slim(), ("w1",)),
            Node("out", any_join(g), ("s1", T)),
        ],
        None,
    ),
    "running": ((S,), lambda g: [Node("out", Running(g.choice((None, small(g)))), (S,))], None),
    "session-over-join": (
        (S, T),
        lambda g: [
            Node("join", any_join(g), (S, T)),
            Node("slim", Slim(), ("join",)),
            Node("out", a_session(g, changing=g.random() < 0.5), ("slim",)),
        ],
        None,
    ),
    "join-over-sessions": (
        (S, T),
        lambda g: [
            Node("w1", a_session(g), (S,)),
            Node("w2", a_session(g), (T,)),
            Node("s1", Slim(), ("w1",)),
            Node("s2", Slim(), ("w2",)),
            Node("out", any_join(g), ("s1", "s2")),
        ],
        None,
    ),
    "changing-over-join": (
        (S, T),
        lambda g: [
            Node("join", any_join(g), (S, T)),
            Node("slim", Slim(), ("join",)),
            Node("out", a_changing_window(g), ("slim",)),
        ],
        None,
    ),
    "late-of-hopping": (
        (S,),
        lambda g: [
            Node("w", Window(small(g) + 2, "divert", every=small(g)), (S,)),
            Node("out", a_changing_window(g), ("w.late",)),
        ],
        None,
    ),
    "join-over-hopping": (
        (S, T),
        lambda g: [
            Node("w1", a_hop(g), (S,)),
            Node("s1", Slim(), ("w1",)),
            Node("out", any_join(g), ("s1", T)),
        ],
        None,
    ),
    "window-over-join": (
        (S, T),
        lambda g: [
            Node("join", any_join(g), (S, T)),
            Node("slim", Slim(), ("join",)),
            Node("out", a_window(g), ("slim",)),
        ],
        None,
    ),
    "join-over-windows": (
        (S, T),
        lambda g: [
            Node("w1", a_window(g), (S,)),
            Node("w2", a_window(g), (T,)),
            Node("s1", Slim(), ("w1",)),
            Node("s2", Slim(), ("w2",)),
            Node("out", any_join(g), ("s1", "s2")),
        ],
        None,
    ),
    "union-where-window": (
        (S, T),
        lambda g: [
            Node("where", Where(), (S,)),
            Node("union", Union(), ("where", T)),
            Node("out", a_window(g), ("union",)),
        ],
        None,
    ),
    "late-window": (
        (S,),
        lambda g: [Node("w", Window(small(g), "divert"), (S,)), Node("out", Window(small(g) + 3, final(g)), ("w.late",))],
        None,
    ),
    "enrich": ((S, TABLE), lambda g: [Node("out", an_enrich(g), (S, TABLE))], None),
    "enrich-correct": ((S, TABLE), lambda g: [Node("out", an_enrich(g, correct=True), (S, TABLE))], None),
    "enrich-now": ((S, TABLE), lambda g: [Node("out", Enrich("now", g.choice(("left", "inner"))), (S, TABLE))], None),
    "enrich-window": (
        (S, TABLE),
        lambda g: [
            Node("e", an_enrich(g), (S, TABLE)),
            Node("slim", Slim(), ("e",)),
            Node("out", g.choice((a_window, a_hop, a_changing_window, a_session))(g), ("slim",)),
        ],
        None,
    ),
    "enrich-ordered": (
        (S, TABLE),
        lambda g: [
            Node("e", an_enrich(g), (S, TABLE)),
            Node("slim", Slim(), ("e",)),
            Node("out", g.choice((Sliding, Count))(small(g), final(g)), ("slim",)),
        ],
        None,
    ),
    "enrich-join": (
        (S, T, TABLE),
        lambda g: [
            Node("e", an_enrich(g), (S, TABLE)),
            Node("slim", Slim(), ("e",)),
            Node("out", any_join(g), ("slim", T)),
        ],
        None,
    ),
    "enrich-topic-window": (
        (S, TABLE),
        lambda g: [Node("e", an_enrich(g), (S, TABLE)), Node("slim", Slim(), ("e",))],
        lambda g: [Node("out", a_window(g), ("topic",))],
    ),
    "window-topic-window": (
        (S,),
        lambda g: [Node("w", a_window(g), (S,)), Node("slim", Slim(), ("w",))],
        lambda g: [Node("out", a_window(g), ("topic",))],
    ),
    "where-topic-window": (
        (S,),
        lambda g: [Node("where", Where(), (S,))],
        lambda g: [Node("out", a_window(g), ("topic",))],
    ),
    "join-topic-join": (
        (S, T),
        lambda g: [Node("join", any_join(g), (S, T)), Node("slim", Slim(), ("join",))],
        lambda g: [Node("out", any_join(g), ("topic", "topic"))],
    ),
}


class Style(NamedTuple):
    """What the times of a case are like."""

    partitions: tuple[int, ...]
    sizes: tuple[int, ...]
    forward: tuple[int, ...]  # how far time goes on from row to row
    back: tuple[int, ...]  # how far behind it a row may lie; the lateness is always among them: the last instant on time
    keys: tuple[str | None, ...]
    epochs: tuple[int, int]
    counts: tuple[int, ...]


WIDE = Style(
    (1, 1, 2, 2, 3),
    (0, 1, 2, 3, 5, 6, 8),
    (0, 0, 1, 1, 2, 4),
    (0, 0, 0, 1, 2, 4, 7),
    (*"aaabbc", None),
    (0, 6),
    (0, 0, 1, 2, 3, ALL),
)
# Many rows at few instants, read one by one: ties between rows, watermarks and frontiers are the rule.
TIGHT = Style((1, 1, 2), (4, 6, 8), (0, 0, 0, 1), (0, 0, 1), ("a",), (3, 9), (0, 1, 1, 2))


def make_source(name: str, rng: random.Random, style: Style) -> Source:
    """Partitions of rows around a rising time, with ties, disorder, null keys, marks that may go back, implausible times."""
    table = name == TABLE  # its rows have keys, and nobody but those who answer from it puts marks there
    keys = [k for k in style.keys if k is not None or not table]
    lateness = rng.randrange(3 if style is TIGHT else 5)
    partitions: list[list[Entry | Mark]] = []
    for _ in range(rng.choice(style.partitions)):
        entries: list[Entry | Mark] = []
        now, app = rng.randrange(2) if style is TIGHT else rng.randrange(-8, 6), 0
        for _ in range(rng.choice(style.sizes)):
            now, app = now + rng.choice(style.forward), app + rng.choice((0, 1, 2, 3))
            if rng.random() < 0.12 and not table:
                entries.append(Mark(now + rng.randrange(-4, 4)))
            t = now - rng.choice((*style.back, lateness, lateness))
            entries.append(Entry(t, rng.choice(keys), rng.choice((*range(6), None)), app))
        partitions.append(entries)
    return Source(name, partitions, None if table else lateness, future=rng.choice((2**61, 2**61, 3)), table=table)


def make_case(name: str, seed: int) -> Case:
    rng = random.Random(f"{name} {seed}")
    style = rng.choice((WIDE, WIDE, TIGHT))
    kinds, first, second = PLANS[name]
    sources = [make_source(kind, rng, style) for kind in kinds]
    flows = [first(rng)] + ([second(rng)] if second else [])
    case = Case(name, seed, sources, flows, rng.choice((1, 2)), fanout=rng.choice((2, 2, 3, 8)), slot=rng.choice((1, 1, 3, 8, 50)))
    case.cuts = make_cuts(case, rng, style)
    return case


def with_keys(case: Case, keys: Sequence[str]) -> Case:
    """The same case with other keys in place of a, b and c."""
    called = dict(zip("abc", keys, strict=True)) | {None: None}

    def renamed(entry: Entry | Mark) -> Entry | Mark:
        return entry._replace(key=called[entry.key]) if isinstance(entry, Entry) else entry

    return replace(case, sources=[replace(s, partitions=[[renamed(e) for e in p] for p in s.partitions]) for s in case.sources])


def make_cuts(case: Case, rng: random.Random, style: Style) -> list[EpochCut]:
    """Some epochs of either flow, then everything that is left, then an empty epoch, in which F may be the end of input."""
    age = [rng.choice(("headers", "headers", "previous", "older")) for _ in case.flows]
    cuts = []
    for _ in range(rng.randint(*style.epochs)):
        flow = rng.randrange(len(case.flows))
        cuts.append(an_epoch(case, rng, flow, age[flow], style.counts))
    drain = rng.random() < 0.3
    for flow in range(len(case.flows)):
        cuts.append(an_epoch(case, rng, flow, age[flow], (ALL,)))
        cuts.append(an_epoch(case, rng, flow, "headers", (ALL,), drain=drain and flow == 0))
    return cuts


def an_epoch(case: Case, rng: random.Random, flow: int, age: str, counts: tuple[int, ...], *, drain: bool = False) -> EpochCut:
    inputs = (
        {s.name: (len(s.partitions), s.table) for s in case.sources} if flow == 0 else {"topic": (case.topic_partitions, False)}
    )

    def cut() -> dict[str, SourceCut]:
        return {name: a_cut(rng, n, age, counts, drain, flow == 1, table) for name, (n, table) in inputs.items()}

    sources = cut()
    lost = cut() if rng.random() < 0.1 else None
    return EpochCut(flow, sources, lost, rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3)))


def a_cut(rng: random.Random, n: int, age: str, counts: tuple[int, ...], drain: bool, of_flow: bool, table: bool) -> SourceCut:
    if drain:
        return SourceCut((ALL,) * n, frozenset(range(n)), marks=tuple((p, FOREVER) for p in range(n)), age=age)
    live = not of_flow and not table
    marks = tuple((p, rng.choice((*range(20), FOREVER))) for p in range(n) if live and rng.random() < 0.03)
    idle = frozenset(p for p in range(n) if live and rng.random() < 0.15)
    see = frozenset(p for p in range(n) if counts == (ALL,) or of_flow or rng.random() < 0.5)
    return SourceCut(tuple(rng.choice(counts) for _ in range(n)), see, idle, marks, age)
