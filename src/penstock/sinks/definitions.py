"""The sinks that a flow has verbs for: topics and views."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.plan.outputs import SinkDefinition

if TYPE_CHECKING:
    from penstock.sinks.port import Sink, SinkContext


@dataclass(frozen=True)
class TopicDefinition(SinkDefinition):
    """`stream.to(…)`"""

    name: str
    key: tuple[str, ...] | None = None
    partitions: int = 1

    kind: ClassVar[str] = "topic"
    ordered: ClassVar[bool] = True
    by_row: ClassVar[bool] = False
    sparse: ClassVar[bool] = True

    @property
    def target(self) -> str:
        return self.name

    @property
    def topic(self) -> str:
        return self.name

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self.key

    def build(self, context: "SinkContext") -> "Sink":
        from penstock.sinks.topic import TopicSink

        spec = context.spec
        return TopicSink(spec, context.log, self.name, self.partitions, spec.key, context.storage, context.fail)

    def details(self, key: tuple[str, ...]) -> str:
        return f"{super().details(key)}, {self.partitions} partition{'s' if self.partitions > 1 else ''}"


@dataclass(frozen=True)
class ViewDefinition(SinkDefinition):
    """`stream.view(…)`"""

    name: str
    key: tuple[str, ...] | None = None

    kind: ClassVar[str] = "view"

    @property
    def target(self) -> str:
        return self.name

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self.key

    def build(self, context: "SinkContext") -> "Sink":
        from penstock.sinks.view import ViewSink

        return ViewSink(context.spec, context.views / f"{self.name}.db", context.storage, context.fail)
