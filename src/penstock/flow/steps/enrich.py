"""Each row of a stream with the row of a table that was valid at its time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar, Literal

import pyarrow as pa

from penstock import plan
from penstock.core.schema import TIMESTAMP, Schema, type_text
from penstock.flow.definition import Known
from penstock.flow.place import At, find
from penstock.flow.steps.matching import right_names
from penstock.flow.steps.updates import refuse_updates

AsOf = Literal["event", "now"]
VERSION = ("version_time", "version_offset")  # the columns that tell which version was used
HISTORY = timedelta(days=7)


@dataclass(frozen=True)
class EnrichDefinition:
    """A stream and a table: rows are answered by the version that was valid at their time, or when they came."""

    on: tuple[str, ...]
    how: Literal["left", "inner"]
    as_of: AsOf
    late: Literal["keep", "correct"]
    allowed: timedelta | None
    wait: timedelta | None
    history: timedelta | None
    version: bool

    kind: ClassVar[str] = "enrich"
    takes_updates: ClassVar[bool] = True  # of the table

    @property
    def judges(self) -> bool:
        """It waits for time to pass."""
        return self.wait is not None

    @property
    def by(self) -> tuple[str, ...]:
        return self.on

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        stream, table = inputs
        doing = f"enrich {stream.label} with {table.label}"
        refuse_updates(stream, "enrich", at, f'join it as a table: {stream.label}.join({table.label}, on="…")')
        self._check(stream, table, at, doing)
        versions = _versions(table, at, doing)
        on, key = _matched(self.on, stream, versions, at, doing)
        names = right_names(key, stream, versions, at)
        fields = [*stream.schema.arrow, *self._fields(names, versions.schema)]
        hint = f"select other names before, e.g. {table.label}.select(…)"
        at.new_columns([f.name for f in fields], doing, hint=hint)
        definition = plan.Enrich(
            on,
            key,
            self.how,
            self.as_of,
            names,
            correct=self.late == "correct",
            allowed=self.allowed or timedelta(),
            wait=self.wait,
            history=self.history if self.as_of == "event" else None,
            version=VERSION if self.version else None,
        )
        updating = self.late == "correct"
        step = plan.Step(at.name, (stream.name, versions.name), definition, Schema(pa.schema(fields)), at.origin, updating)
        return Known((step,), at.name, stream.view_key, stream.topic_key, (stream, table))

    def _fields(self, names: Sequence[tuple[str, str]], schema: Schema) -> list[pa.Field]:
        fields = [schema.arrow.field(own).with_name(new) for new, own in names]
        if self.how == "left":
            fields = [f.with_nullable(True) for f in fields]
        if self.version:
            fields += [pa.field(VERSION[0], TIMESTAMP), pa.field(VERSION[1], pa.string())]
        return fields

    def _check(self, stream: Known, table: Known, at: At, doing: str) -> None:
        if self.late == "correct" and self.allowed is None:
            at.refuse(
                'late="correct" needs a bound: how much later than the rows that were answered a version may still change them',
                hint='say it, e.g. allowed="1 hour"; answered rows are kept so long',
            )
        if self.late == "keep" and self.allowed is not None:
            at.refuse('allowed= says how long answers are corrected, and late="keep" corrects none', hint='use late="correct"')
        if self.as_of == "event":
            return
        if self.late == "correct" or self.wait is not None:
            at.refuse(
                f'cannot {doing}: as_of="now" answers with what is known when a row comes, and waits and corrects nothing',
                hint='leave late=, allowed= and wait= out, or use as_of="event"',
            )
        for known in (stream, table):
            if not _straight(known):
                at.refuse(
                    f'cannot {doing}: as_of="now" goes by the time at which the log took a row, and rows of {known.label} are made',
                    hint='use as_of="event"',
                )


def carry_append_times(steps: Sequence[plan.Step]) -> tuple[plan.Step, ...]:
    """Sources above a join as of now give the append times of their rows."""
    wanted: set[str] = set()
    for step in reversed(steps):
        if step.name in wanted or step.node.wants_append_times:
            wanted |= set(step.inputs)
    return tuple(replace(s, node=s.node.with_append_times()) if s.name in wanted else s for s in steps)


def _straight(known: Known) -> bool:
    """Rows as they came from a topic; nothing but steps that look at one row each lies between."""
    return known.step.node.keeps_append_times and all(_straight(above) for above in known.inputs)


def _versions(table: Known, at: At, doing: str) -> Known:
    if table.versions is None:
        stream = not table.step.updating
        at.refuse(
            f"cannot {doing}: {table.label} is a stream, not a table"
            if stream
            else f"cannot {doing}: what {table.label} was at a time cannot be told, since it is worked out from other rows",
            hint='read it with flow.table(…), or make a table of it: .latest(by="…")'
            if stream
            else "write it to a topic with .to(…) and read that with flow.table(…); or join it as a table: a.join(b, on=…)",
        )
    return table.versions


def _matched(given: Sequence[str], stream: Known, table: Known, at: At, doing: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of the stream, and those of the table's key in the same order: by name, else by place."""
    if not given:
        at.refuse(f"cannot {doing}: no column to look it up by", hint=f'name it, e.g. on="{table.view_key[0]}"')
    on = at.columns(given, stream.schema, doing)
    key = table.view_key
    named = {find(name, key): name for name in on}
    if len(on) != len(key):
        at.refuse(
            f"cannot {doing}: the key of {table.label} is {', '.join(key)}, and on= names {', '.join(on)}",
            hint="name as many columns as the table's key has",
        )
    on = tuple(named[name] for name in key) if set(named) == set(key) else on
    for mine, theirs in zip(on, key, strict=True):
        if stream.schema.type(mine) != table.schema.type(theirs):
            have, want = type_text(stream.schema.type(mine)), type_text(table.schema.type(theirs))
            at.refuse(
                f"cannot {doing}: {mine!r} is {have} and {theirs!r} of {table.label} is {want}",
                hint=f'bring both to one type first, e.g. with_columns({mine}="cast({mine} as {want})")',
            )
    return on, key
