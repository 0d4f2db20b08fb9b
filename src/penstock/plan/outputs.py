"""Where rows go: a sink's definition, and an output, which is one in its place in a flow."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock.plan.origin import Origin

if TYPE_CHECKING:
    from penstock.sinks.port import Sink, SinkContext


class SinkDefinition(ABC):
    """What takes the rows of a step, as a frozen value. Kind and target name it in the flow, so the target is never a URL: that
    may hold a password, and a store may move."""

    kind: ClassVar[str]
    takes_updates: ClassVar[bool] = True  # rows may change and go
    ordered: ClassVar[bool] = False  # rows are told in the order of the log, where they have one
    by_row: ClassVar[bool] = True  # its key tells rows apart; else it is the key of a record, and rows may share it
    apart: ClassVar[bool] = False  # it may be away for long: the flow goes on without it, up to a limit, and it catches up
    sparse: ClassVar[bool] = False  # not every epoch leaves a trace there: the last one it has may be older than it is

    @property
    @abstractmethod
    def target(self) -> str:
        """What it writes."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns of its key; None: as the step suggests."""
        return None

    @property
    def topic(self) -> str | None:
        """The topic that it writes, for other flows to read; None where it is something else."""
        return None

    @abstractmethod
    def build(self, context: "SinkContext") -> "Sink":
        """The sink itself. Called by the driver at every start of the flow."""

    def prepare(self, rows: pa.Table) -> pa.Table:
        """What is staged of the rows; runs in tasks, where the rows are, and its result is what the sink is given."""
        return rows

    def recorded(self, flow: str, name: str) -> dict[str, Any]:
        """What is kept of it with every start of the flow, so that others find it without the flow's program. No secrets. name:
        what it is called in the flow."""
        return {}

    def details(self, key: tuple[str, ...]) -> str:
        """Said of it in `penstock plan`."""
        return f"key {', '.join(key)}" if key else "key: its position" if self.by_row else "no key"


@dataclass(frozen=True)
class Output:
    """A sink in its place."""

    definition: SinkDefinition
    name: str
    input: str
    key: tuple[str, ...]  # the columns that name a row, () = its position; or those of a record's key
    origin: Origin

    @property
    def kind(self) -> str:
        return self.definition.kind

    @property
    def topic(self) -> str | None:
        return self.definition.topic

    @property
    def id(self) -> str:
        """What it is called in decisions and files."""
        return f"{self.kind}.{self.name}"
