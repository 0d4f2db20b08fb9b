"""How queues of ours stand on the broker: their names and arguments, their exchanges, and how messages are delayed.

exchange SOURCE (topic)  ──route──▶  queue NAME  ──expired──▶  queue NAME.dead
                         ──route──▶  exchange NAME.headers.0 (headers)  ──▶  queue NAME
exchange penstock.delay.1500 (fanout)  ──▶  queue penstock.delay.1500  ──after 1.5 s──▶  the queue that the routing key names
"""

from typing import Any

from penstock.errors import AlreadyThere, BadInput
from penstock.queue.port import Binding, QueueSpec
from penstock.queue.rabbitmq.amqp.channel import DIFFERENT, Channel, Closed
from penstock.queue.rabbitmq.amqp.envelope import wire_name, wire_value
from penstock.queue.rabbitmq.settings import CLASSIC, QUORUM

OURS = "penstock."
DELAY = f"{OURS}delay."
UNLIMITED = 1_000_000  # deliveries: whether a message was tried often enough is not for the broker to say
HIGHEST = 9  # priority
LONGEST = 30 * 86_400_000  # milliseconds that a message is delayed in one go; the broker allows 49 days
_FIRST = (3, 8)  # the version that has quorum queues


class Layout:
    """What is declared, given a name space and a kind of queue."""

    def __init__(self, prefix: str, kind: str, version: tuple[int, ...]) -> None:
        self.prefix = prefix
        self.quorum = kind == QUORUM and version >= _FIRST
        self.forgiving = version >= (4, 3)  # what is given back with nack does not count as tried
        self.priorities = not self.quorum or version >= (4, 3)
        self.delays = DELAY if self.quorum else f"{DELAY}{CLASSIC}."
        self._delays: set[int] = set()  # milliseconds for which there is an exchange

    def name(self, name: str) -> str:
        return f"{self.prefix}{name}"

    async def declare(self, channel: Channel, spec: QueueSpec) -> None:
        """The queue, and where it gets its messages from."""
        await _declare(channel, self.name(spec.name), self.arguments(spec))
        exchange = self.name(spec.origin)
        await _declare_exchange(channel, exchange)
        for number, binding in enumerate(spec.bindings or [Binding()]):
            await self._bind(channel, spec, exchange, number, binding)

    async def declare_dead_letters(self, channel: Channel, name: str) -> None:
        """The queue of dead letters: it keeps them until somebody takes them."""
        await _declare(channel, self.name(name), self._kind())
        await _declare_exchange(channel, self.name(name))
        await channel.ask("queue_bind", self.name(name), self.name(name), "#")

    async def delay_exchange(self, channel: Channel, milliseconds: int) -> str:
        """The exchange that delays messages for so long, or a little longer: there is one for every two digits."""
        wanted = min(two_digits(milliseconds), LONGEST)
        name = f"{self.delays}{wanted}"
        if wanted not in self._delays:
            await channel.ask("exchange_declare", name, "fanout", durable=True)
            await _declare(channel, name, {**self._kind(), "x-message-ttl": wanted, "x-dead-letter-exchange": "", **self._safely()})
            await channel.ask("queue_bind", name, name)
            self._delays.add(wanted)
        return name

    def forget(self) -> None:
        """Somebody may have deleted what was there."""
        self._delays.clear()

    async def delete(self, channel: Channel, spec: QueueSpec, last: bool) -> None:
        """last: no other queue has the source."""
        await channel.ask("queue_delete", self.name(spec.name))
        for number, binding in enumerate(spec.bindings):
            if binding.headers:
                await channel.ask("exchange_delete", self._match(spec, number))
        if last:
            await channel.ask("exchange_delete", self.name(spec.origin))

    async def _bind(self, channel: Channel, spec: QueueSpec, exchange: str, number: int, binding: Binding) -> None:
        if not binding.headers:
            await channel.ask("queue_bind", self.name(spec.name), exchange, binding.route)
            return
        match = self._match(spec, number)
        await channel.ask("exchange_declare", match, "headers", durable=True, internal=True)
        await channel.ask("exchange_bind", match, exchange, binding.route)
        wanted = {wire_name(name): wire_value(value) for name, value in binding.headers.items()}
        wanted["x-match"] = "any" if binding.any_header else "all"
        await channel.ask("queue_bind", self.name(spec.name), match, "", arguments=wanted)

    def _match(self, spec: QueueSpec, number: int) -> str:
        return self.name(f"{spec.name}.headers.{number}")

    def _kind(self) -> dict[str, Any]:
        return {"x-queue-type": QUORUM, "x-delivery-limit": UNLIMITED} if self.quorum else {"x-queue-type": CLASSIC}

    def _safely(self) -> dict[str, Any]:
        """A message that goes on to another queue stays until it is there."""
        return {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"} if self.quorum else {}

    def arguments(self, spec: QueueSpec) -> dict[str, Any]:
        found = self._kind() if self.quorum else {**self._kind(), "x-max-priority": HIGHEST}
        limit = spec.limit
        if limit.policy != "drop-oldest":  # what is dropped would be taken for dead
            found |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.name(spec.dead_letters), **self._safely()}
        if limit.policy != "buffer":
            found["x-overflow"] = "drop-head" if limit.policy == "drop-oldest" else "reject-publish"
            found |= {"x-max-length": limit.messages} if limit.messages is not None else {}
            found |= {"x-max-length-bytes": limit.bytes} if limit.bytes is not None else {}
        return found


def check_layout(spec: QueueSpec) -> None:
    """BadInput for what RabbitMQ cannot do."""
    if spec.ordered:
        raise BadInput(
            f"queue {spec.name} cannot be ordered: RabbitMQ delivers messages of one key to several consumers at once",
            hint="use a queue on the log, or a queue per part with one consumer each",
        )
    for name in (spec.name, spec.origin, spec.dead_letters):
        if name.startswith((OURS, "amq.")):
            raise BadInput(f"{name} cannot be used", hint=f"names that begin with {OURS} and amq. are taken")
    for binding in spec.bindings:
        if any(name.startswith("x-") for name in binding.headers):
            raise BadInput("RabbitMQ does not look at headers whose names begin with x-", hint="give the header another name")


async def _declare(channel: Channel, name: str, arguments: dict[str, Any]) -> None:
    try:
        await channel.ask("queue_declare", name, durable=True, arguments=arguments)
    except Closed as error:
        if error.code != DIFFERENT:
            raise
        raise AlreadyThere(f"RabbitMQ has a queue {name} already, which was made otherwise", error.text) from error


async def _declare_exchange(channel: Channel, name: str) -> None:
    try:
        await channel.ask("exchange_declare", name, "topic", durable=True)
    except Closed as error:
        if error.code != DIFFERENT:
            raise
        raise BadInput(f"exchange {name} is there, but not as a topic exchange", error.text) from error


def two_digits(milliseconds: int) -> int:
    """As long or longer, so that there are not too many of them."""
    size = int(10 ** max(0, len(str(milliseconds)) - 2))
    return max(1, -(-milliseconds // size) * size)
