"""What identifies a step is written down: no later version may take a kept state for another's, or refuse its own."""

from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from typing import Any

import orjson
import pyarrow as pa
import pytest

from golden.make_meanings import GOLDEN, plans, written
from penstock import plan
from penstock.core.expression import Expression
from penstock.core.schema import Schema
from penstock.plan import Plan, Step
from penstock.plan.meaning import fingerprint, fingerprint_of_0_1, is_of
from penstock.plan.node import kinds

PLANS = plans()
STEPS = [step for checked in PLANS for step in checked.steps]


@pytest.mark.parametrize("checked", PLANS, ids=lambda checked: checked.flow)
def test_the_meaning_of_every_step_is_the_one_that_was_written_down(checked: Plan) -> None:
    """A difference here refuses every home that users have: give the description of the changed step a new version, and teach the
    old one to be recognised, before the file is written anew (tests/golden/make_meanings.py)."""
    assert written(checked) == orjson.loads(GOLDEN.read_bytes())[checked.flow]


def test_every_kind_of_step_is_among_them() -> None:
    assert {type(step.node) for step in STEPS} == {*kinds()}


# What a step is not identified by, and why.
APART = {
    (plan.Source, "idle"): "marks of the engine are in the log",
    (plan.Source, "delay"): "the same",
    (plan.Source, "columns"): "they are those of the step's schema",
    (plan.Source, "key"): "columns of the record, checked when they are read",
    (plan.Source, "appended"): "follows from the steps below",
    (plan.MapArrow, "function"): "a mended function is the same step",
    (plan.Lookup, "remote"): "answers are given once, whoever gives them",
    (plan.Lookup, "asking"): "the same",
    (plan.Lookup, "keys"): "the types of columns of the step's input",
}
OTHER: dict[type, Any] = {
    Expression: Expression("other", pa.bool_(), ("other",)),
    Schema: Schema.of("other long"),
    plan.Spaced: plan.Spaced(timedelta(1), timedelta(2)),
    plan.Calendar: plan.Calendar("month", "UTC"),
    plan.Versions: plan.Versions(("other",)),
}
ABSENT: dict[str, Any] = {
    "condition": OTHER[Expression],
    "clock": plan.ClockFix("a", "b", None, ("c",), timedelta(1), timedelta(2), "d", "e"),
    "versions": OTHER[plan.Versions],
    "order": "other",
    "append_time": "other",
    "time": "other",
    "version": ("a", "b"),
}


@pytest.mark.parametrize("step", {type(s.node): s for s in STEPS}.values(), ids=lambda step: type(step.node).__name__)
def test_another_value_of_any_field_is_another_step_unless_a_reason_is_given(step: Step) -> None:
    for field in fields(step.node):  # type: ignore[arg-type]
        changed = replace(step.node, **{field.name: another(field.name, getattr(step.node, field.name))})
        same = changed.meaning() == step.node.meaning()
        assert same == ((type(step.node), field.name) in APART), field.name


def another(name: str, value: Any) -> Any:
    """A value that differs."""
    if value is None:
        return ABSENT.get(name, timedelta(seconds=7))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | str | timedelta):
        return value + {int: 1, str: "x", timedelta: timedelta(seconds=1)}[type(value)]
    if isinstance(value, tuple):
        return (*value, *value[:1]) if value else ("other",)
    if is_dataclass(value) and type(value) not in OTHER:
        return replace(value, **{f.name: another(f.name, getattr(value, f.name)) for f in fields(value)[:1]})
    return OTHER.get(type(value), lambda rows: rows)


def test_the_fingerprint_of_version_0_1_is_recognised_and_another_flows_is_not() -> None:
    one, other = PLANS[:2]
    for known in (fingerprint(one), fingerprint_of_0_1(one)):
        assert is_of(one, known)
        assert not is_of(other, known)


def test_the_order_in_which_steps_were_written_is_no_part_of_a_flow() -> None:
    one = PLANS[0]
    assert fingerprint(replace(one, steps=one.steps[::-1])) == fingerprint(one)


def test_a_description_names_its_kind_and_its_version() -> None:
    for step in STEPS:
        kind, version = step.node.meaning()["is"].split("/")
        assert kind.replace("-", "").isalpha()
        assert int(version) >= 1
        assert "0x" not in str(step.meaning()), f"{step.name} knows where something is in memory"
