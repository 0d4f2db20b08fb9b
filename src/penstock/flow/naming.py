"""Names are state: a step is called by what it writes, else by its kind, inputs and columns; never by a number."""

import hashlib
import re
from collections.abc import Mapping, Sequence

from penstock.errors import BadFlow
from penstock.flow.definition import Node
from penstock.flow.place import Place
from penstock.plan import Origin

_LONGEST = 150
_ALL_ARE_COLUMNS = ("select", "with_columns")  # a verb whose name= would be a column called name


def names_of(flow: str, nodes: Sequence[Node], given: Mapping[Node, str]) -> dict[Node, str]:
    """The name of every node, inputs first; BadFlow where two would bear the same one.

    `given` are the names that the user chose: with `name=`, or by the first output a step writes."""
    names: dict[Node, str] = {}
    for node in nodes:
        names[node] = given.get(node) or _made(node, [names[i] for i in node.inputs])
    _refuse_equal(flow, names)
    return names


def _made(node: Node, inputs: Sequence[str]) -> str:
    called = getattr(node.definition, "called", None)  # sources bear the name of their topic
    return str(called) if called else _safe("-".join([node.definition.kind, *inputs, *node.definition.by]))


def _safe(name: str) -> str:
    """The name within the allow-list; where something had to go, a digest of the whole keeps it apart from others."""
    plain = re.sub(r"[^a-zA-Z0-9._-]", "_", name)
    if plain == name and len(name) <= _LONGEST:
        return name
    return f"{plain[:_LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _refuse_equal(flow: str, names: Mapping[Node, str]) -> None:
    seen: dict[str, Node] = {}
    for node, name in names.items():
        other = seen.setdefault(name, node)
        if other is not node:
            raise equal_names(flow, name, other.origin, node.origin, node.definition.kind)


def equal_names(flow: str, name: str, first: Origin, second: Origin, kind: str = "") -> BadFlow:
    how = '.named("…") behind it' if kind in _ALL_ARE_COLUMNS else 'name="…" or .named("…")'
    return BadFlow(
        f"two steps would be called {name!r}",
        str(Place(flow, second)),
        f"the other one: {first}",
        hint=f"the name finds a step's state again, so it must be its own: give one of them another with {how}",
    )
