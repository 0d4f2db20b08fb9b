"""Several tables of PostgreSQL servers, which get every epoch together."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.errors import BadInput
from penstock.plan.outputs import SinkDefinition
from penstock.sinks.stores.sql.postgres import PostgresDefinition

if TYPE_CHECKING:
    from penstock.sinks.port import Sink, SinkContext

_ALIKE = ("key", "on_conflict")  # what decides which rows there are


@dataclass(frozen=True)
class TwoPhaseDefinition(SinkDefinition):
    """`stream.sink(two_phase([…]))`"""

    participants: tuple[PostgresDefinition, ...]

    kind: ClassVar[str] = "two_phase"
    ordered: ClassVar[bool] = True
    apart: ClassVar[bool] = True

    @property
    def target(self) -> str:
        """The table, where all have the same name; else all of their names."""
        return "-".join(sorted({each.table for each in self.participants}))

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self.participants[0].key

    def emptied(self, flow: str, name: str) -> str:
        """How people take out all that the sink has written there, its markers included."""
        return "; ".join(each.emptied(flow, marker_name(name, each)) for each in self.participants)

    def recorded(self, flow: str, name: str) -> dict[str, Any]:
        databases = [{"url": each.url, "table": each.table, "password": each.password} for each in self.participants]
        return {"emptied": self.emptied(flow, name), "databases": databases}

    def build(self, context: "SinkContext") -> "Sink":
        from penstock.sinks.stores.two_phase.postgres import PostgresParticipant
        from penstock.sinks.stores.two_phase.sink import TwoPhaseSink

        participants = [PostgresParticipant(each, context.spec) for each in self.participants]
        stops = any(each.on_error == "stop" for each in self.participants)
        emptied = self.emptied(context.spec.flow, context.spec.name)
        return TwoPhaseSink(context, participants, stops, self.participants[0].holds, emptied)


def marker_name(sink: str, table: PostgresDefinition) -> str:
    """Of a sink in one of its databases: two tables of one schema have their markers in one table."""
    return f"{sink}/{table.table}"


def two_phase(participants: Iterable[PostgresDefinition]) -> TwoPhaseDefinition:
    """Tables of several PostgreSQL databases that show every epoch close together, or not at all:
    `sales.sink(two_phase([postgres(shop, "sales"), postgres(ledger, "sales")]))`.

    An epoch is prepared in all of them, then committed in all of them. While one of them is away the others get nothing more. All
    get the same rows: one that any of them refuses is left out of all and becomes a dead letter, or stops the flow where one of
    them says `on_error="stop"`. Their servers need `max_prepared_transactions`, which is 0 by default."""
    found = tuple(participants)
    for each in found:
        if not isinstance(each, PostgresDefinition):
            raise BadInput(f"two_phase cannot write to {each!r}", hint="give tables of PostgreSQL: postgres(…)")
    if len(found) < 2:
        raise BadInput(
            f"two_phase needs two tables or more, and has {len(found)}", hint="write to one of them alone: sink(postgres(…))"
        )
    if len({(each.url, each.table) for each in found}) < len(found):
        raise BadInput("two_phase has one table twice", hint="name each table of each database once")
    for what in _ALIKE:
        if len({getattr(each, what) for each in found}) > 1:
            raise BadInput(f"the tables of two_phase differ in {what}", hint=f"all get the same rows: give each the same {what}=")
    return TwoPhaseDefinition(found)
