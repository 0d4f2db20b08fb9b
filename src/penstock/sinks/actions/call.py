"""A function of the user's, called for each row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from penstock.errors import BadInput
from penstock.sinks.actions.definition import ActionDefinition
from penstock.sinks.actions.outbox.sending import Sending, SendingOptions

if TYPE_CHECKING:
    from penstock.sinks.actions.port import Intent

Function = Callable[[dict[str, Any], str], object]


@dataclass(frozen=True)
class CallDefinition(ActionDefinition):
    """`stream.sink(call(…))`"""

    function: Function

    kind: ClassVar[str] = "call"

    @property
    def target(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__).strip("<>_") or "function"

    def action(self) -> "Call":
        return Call(self)


def call(function: Function, **sending: Unpack[SendingOptions]) -> CallDefinition:
    """Calls `function(row, key)` in the driver's process, from several threads: `alerts.sink(call(page_somebody))`.

    The row is a dict, the key a text that is the same whenever the row is given again. What it returns is ignored; what it raises
    counts as a try that failed, and `Refused("why")` makes the row a dead letter at once. docs/sinks/actions.md has `retries` and
    what else every action takes."""
    if not callable(function):
        raise BadInput(f"cannot call {function!r}: it is no function")
    return CallDefinition(function, sending=Sending.of(sending))


class Call:
    """Has no time-out of its own: what the function waits for should have one."""

    def __init__(self, definition: CallDefinition) -> None:
        self._function, self.called = definition.function, f"call {definition.target}"

    def open(self) -> None:
        """There is nothing to open."""

    def do(self, intent: "Intent") -> None:
        self._function(dict(intent.row), intent.key)

    def close(self) -> None:
        """There is nothing to close."""
