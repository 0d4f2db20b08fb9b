"""The law: whatever the cut, rows and fates are those of the specification over the whole input with the same marks.

An implementation runs a case and gives back an Outcome; what it is made of (kernels in memory, an engine) is its own affair.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from penstock.core.position import Position, escape

from .cases import Case
from .reference.log import EngineMark
from .reference.steps import Result, specify
from .reference.values import Row

Shown = tuple[int, str | None, Any, bytes]  # time, key, value, position


class Broken(AssertionError):
    """A promise does not hold."""


def hold(truth: bool, *what: object) -> None:
    if not truth:
        raise Broken(*what)


@dataclass
class Output:
    """What a node gave over the whole run."""

    rows: list[Shown] = field(default_factory=list)
    late: list[bytes] = field(default_factory=list)  # positions of the rows it diverted
    fates: Counter[str] = field(default_factory=Counter)


@dataclass
class Outcome:
    """What a run gave: the marks it recorded, and the output of every node as "flow/node"."""

    marks: dict[str, list[EngineMark]] = field(default_factory=dict)
    implausible: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, Output] = field(default_factory=dict)


Implementation = Callable[[Case], Outcome]


def check(case: Case, implementation: Implementation) -> None:
    """Runs the case and compares; Broken if a promise does not hold."""
    outcome = implementation(case)
    for name, expected in specification(case, outcome).items():
        compare(name, outcome.nodes[name], expected)


def specification(case: Case, outcome: Outcome) -> dict[str, Result]:
    """Every node's result over the whole input, with the marks that the run recorded."""
    results: dict[str, Result] = {}
    known: dict[str, Result] = {}
    for source in case.sources:
        rows, implausible, frontier = source.read(outcome.marks[source.name])
        hold(outcome.implausible[source.name] == implausible, "implausible rows differ", source.name)
        known[source.name] = Result(rows, frontier=frontier)
    for flow, nodes in enumerate(case.flows):
        for node in nodes:
            inputs = [known[i.removesuffix(".late")] for i in node.inputs]
            rows = [r.late if i.endswith(".late") else r.rows for i, r in zip(node.inputs, inputs, strict=True)]
            known[node.name] = results[f"{flow}/{node.name}"] = specify(node.step, rows, [r.frontier for r in inputs])
        known["topic"] = known[nodes[-1].name]
    return results


def compare(name: str, got: Output, expected: Result) -> None:
    if expected.told:
        tells_what_holds(name, got.rows, expected.rows, expected.told.every)
        return
    mine, theirs = Counter(map(comparable, got.rows)), Counter(comparable(shown(r)) for r in expected.rows)
    hold(mine == theirs, f"rows of {name} differ", ("only here", list(mine - theirs)), ("missing", list(theirs - mine)))
    late = Counter(encoded(r.pos) for r in expected.late)
    hold(Counter(got.late) == late, f"late rows of {name} differ", got.late, late)
    if expected.fates is not None:
        hold(+got.fates == +expected.fates, f"fates of {name} differ", ("run", +got.fates), ("specification", +expected.fates))


def tells_what_holds(name: str, told: list[Shown], table: list[Row], every: int | None) -> None:
    """An end is told behind a beginning, a beginning behind an end; what was told last is what holds, unless `every` kept it back.
    told: in the order of the epochs; table: what the specification says of each key."""
    hold(len({position for *_, position in told}) == len(told), f"{name} tells something twice under one position", told)
    for key in {row.key for row in table} | {key for _, key, _, _ in told}:
        mine = [(t, *value[2:]) for t, k, value, _ in told if k == key]
        words = [word for _, word, _ in mine]
        ends = [before == "fired" for before, word in pairwise(words) if word == "resolved"]
        hold(all(ends) and words[:1] != ["resolved"], f"{name} ends what was not begun", key, mine)
        hold(all(since is not None for _, _, since in mine), f"{name} does not say since when", key, mine)
        if every is None:
            hold(all(a != b for a, b in pairwise(words)), f"{name} tells again what it told", key, mine)
        else:
            begun = [t for t, word, _ in mine if word == "fired"]
            hold(all(b - a >= every for a, b in pairwise(begun)), f"{name} tells too often", key, mine)
        now = next((row.val[2] for row in table if row.key == key), "resolved")
        open = words[-1:] == ["fired"]
        hold(not (open and now == "resolved"), f"{name} has not told the end", key, mine)
        hold(open or now != "fired" or every is not None, f"{name} has not told the beginning", key, mine)


def shown(row: Row) -> Shown:
    return (row.t, row.key, row.val, encoded(row.pos))


def comparable(row: Shown) -> Shown:
    """NaN equals nothing, and so could not be counted."""
    val = tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in row[2]) if isinstance(row[2], tuple) else row[2]
    return (*row[:2], val, row[3])


def encoded(pos: tuple[Any, ...]) -> bytes:
    """A position of the specification as the product writes it."""
    if pos[0] == "window":
        key = b"\x01" if pos[1] is None else b"\x03" + escape(pos[1].encode())
        return b"w\x01" + key + (pos[2] + 2**63).to_bytes(8, "big")
    if pos[0] == "pair":
        return b"p" + b"".join(b"\x00" if side is None else encoded(side) for side in pos[1:])
    if isinstance(pos[0], tuple):
        return b"u" + encoded(pos[0]) + pos[1].to_bytes(4, "big")
    return Position(*pos).encode()
