"""What all definitions of actions have in common."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.errors import BadInput
from penstock.plan.outputs import SinkDefinition
from penstock.sinks.actions.outbox.sending import Sending

if TYPE_CHECKING:
    from penstock.sinks.actions.port import Action
    from penstock.sinks.port import Sink, SinkContext, SinkSpec


@dataclass(frozen=True, kw_only=True)
class ActionDefinition(SinkDefinition):
    """Rows that become actions. They cannot be taken back, so rows that change are refused."""

    sending: Sending = field(default_factory=Sending)

    takes_updates: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    sparse: ClassVar[bool] = True  # an epoch without rows leaves no trace in the outbox

    @abstractmethod
    def action(self) -> "Action":
        """The action itself. Called by the driver at every start of the flow."""

    def check(self, spec: "SinkSpec") -> None:
        """Refuses what does not fit the rows, as a template that names a column they do not have."""

    def build(self, context: "SinkContext") -> "Sink":
        from penstock.sinks.actions.sink import ActionSink

        self.check(context.spec)
        for name in self.sending.in_order_by:
            if name not in context.spec.schema.names:
                raise BadInput(f"in_order_by names a column that is not there: {name}", f"sink {context.spec.name}")
        return ActionSink(context, self.action(), self.sending)

    def details(self, key: tuple[str, ...]) -> str:
        sending, by = self.sending, self.sending.in_order_by
        order = f"in order by {', '.join(by)}" if by else "in no order"
        rate = f", {sending.rate:g} a second at most" if sending.rate else ""
        return f"{super().details(key)}, {order}{rate}, {sending.tries} tries"
