"""What the definitions of all stores have in common."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.plan.outputs import SinkDefinition
from penstock.sinks.stores.arguments import OnError
from penstock.sinks.stores.changes import Keep

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.sinks.port import Sink, SinkContext, SinkSpec
    from penstock.sinks.stores.port import Store


class StoreDefinition(SinkDefinition):
    """A store as a frozen value. It says how its `Store` is made; `StoreSink` delivers to it."""

    ordered: ClassVar[bool] = True
    apart: ClassVar[bool] = True

    key: tuple[str, ...] | None
    on_error: OnError = "dead"

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self.key

    @property
    def holds(self) -> Keep:
        """Which of several rows with one key holds, where rows stay."""
        return "last"

    @property
    def forgets(self) -> bool:
        """Whether rows go by themselves after a while."""
        return False

    def kept(self, rows: "pa.Table", spec: "SinkSpec") -> "pa.Table":
        """Rows that were written as they can be read back; those of which the store keeps nothing are left out."""
        return rows

    def emptied(self, flow: str, name: str) -> str:
        """How people take out all that the sink has written there, its marker included, in the words of the store."""
        return f"empty {self.target}, and take away what Penstock noted there"

    def recorded(self, flow: str, name: str) -> dict[str, Any]:
        return {"emptied": self.emptied(flow, name)}

    @abstractmethod
    def store(self, context: "SinkContext") -> "Store":
        """Called by the driver at every start of the flow."""

    def build(self, context: "SinkContext") -> "Sink":
        from penstock.sinks.stores.sink import StoreSink

        emptied = self.emptied(context.spec.flow, context.spec.name)
        return StoreSink(context, self.store(context), self.on_error == "stop", self.holds, emptied)
