"""Whether a flow is still the one its state was made by."""

import hashlib
import re

import orjson

from penstock.plan.rows import Lookup, MapArrow
from penstock.plan.sources import Source
from penstock.plan.steps import Plan, Step

_ADDRESS = re.compile(" at 0x[0-9a-f]+")  # of a function: it is another one in every process


def fingerprint(plan: Plan) -> str:
    """Changes when the meaning of the steps does."""
    meanings = {step.name: step.meaning() for step in plan.steps}
    return "2:" + hashlib.sha256(orjson.dumps(meanings, default=str, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def fingerprint_of_0_1(plan: Plan) -> str:
    """As version 0.1 wrote it into decisions: homes of that version are recognised by it."""
    text = "\n".join(f"{s.name}|{s.inputs}|{_as_in_0_1(s)}|{s.schema.ddl()}" for s in plan.steps)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_of(plan: Plan, found: str) -> bool:
    """Whether a fingerprint that was found is the plan's, as any version has written it."""
    return found == (fingerprint(plan) if ":" in found else fingerprint_of_0_1(plan))


def _as_in_0_1(step: Step) -> str:
    node = step.node
    if isinstance(node, MapArrow):
        return "map_arrow"
    if isinstance(node, Lookup):
        return f"lookup {node.on} {node.how} {node.answers.ddl()}"
    if isinstance(node, Source):
        other = [node.append or None, node.append_time, node.clock, node.versions]
        return " ".join(map(str, ["stream", node.topic, node.time, node.lateness, *filter(None, other)]))
    return _ADDRESS.sub("", repr(node))
