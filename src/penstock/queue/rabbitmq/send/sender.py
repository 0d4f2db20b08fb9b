"""Sends messages to a source: at once, or after a delay; within the limits of the queue they are sent to."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from penstock.core.time import micros
from penstock.errors import Full, Unroutable
from penstock.queue.errors import full, too_large, unroutable
from penstock.queue.port import Message, QueueSpec
from penstock.queue.rabbitmq.amqp.envelope import header_of, properties_of
from penstock.queue.rabbitmq.broker import Broker
from penstock.queue.rabbitmq.send.copier import Copier
from penstock.queue.rabbitmq.send.publication import Outcome, Publication
from penstock.queue.state.routing import FOR, takes

_ROOM = 0.02  # seconds between two looks for room

Specs = Mapping[str, QueueSpec]


class Sender:
    """Sends through one queue."""

    def __init__(self, broker: Broker, copier: Copier, spec: QueueSpec, ours: bool, ready: Callable[[], Awaitable[int]]) -> None:
        """ours: the queue has a source; one of another program's is sent to directly. ready: how many messages stand there."""
        self._broker, self._copier, self._spec, self._ours, self._ready = broker, copier, spec, ours, ready

    async def send(self, messages: Sequence[Message], wait: float) -> list[str | None]:
        targets = await self._targets(messages)
        publications = self._publications(messages, targets, await self._may_expire(messages))
        if self._spec.limit.policy in ("push-back", "drop-newest"):
            return await self._limited(messages, publications, wait)
        outcomes = await self._copier.put(publications, wait)
        _check_returned(outcomes, messages, targets, self._spec)
        return [message.id for message in messages]

    async def _targets(self, messages: Sequence[Message]) -> list[list[str]]:
        """For each message, the queues that it goes to; none where the broker finds them. Unroutable if one goes nowhere."""
        if not self._ours:
            return [[self._spec.name] for _ in messages]
        placed = any(message.delay or FOR in message.headers for message in messages)
        if not self._spec.bindings and not placed:
            return [[] for _ in messages]
        found = self._routed(messages, await self._broker.known(lately=placed))
        if not all(found):
            found = self._routed(messages, await self._broker.specs(anew=True))
        for message, names in zip(messages, found, strict=True):
            if not names:
                raise unroutable(message, self._spec.origin)
        return [names if message.delay or FOR in message.headers else [] for message, names in zip(messages, found, strict=True)]

    def _routed(self, messages: Sequence[Message], specs: Specs) -> list[list[str]]:
        these = [spec for spec in specs.values() if spec.origin == self._spec.origin]
        return [[s.name for s in these if takes(s.bindings, m.route, m.headers, s.name)] for m in messages]

    async def _may_expire(self, messages: Sequence[Message]) -> bool:
        """Whether the broker may take out what expires: only where every queue hands it on to dead letters."""
        if not self._ours or all(message.ttl is None for message in messages):
            return self._ours
        specs = await self._broker.known(lately=True)
        return all(spec.limit.policy != "drop-oldest" for spec in specs.values() if spec.origin == self._spec.origin)

    def _publications(self, messages: Sequence[Message], targets: Sequence[Sequence[str]], expire: bool) -> list[Publication]:
        now, layout, found = self._copier.now(), self._copier.layout, list[Publication]()
        for message, names in zip(messages, targets, strict=True):
            header = header_of(message, now)
            rest = micros(message.delay)
            for name in names:
                found.append(Publication("", layout.name(name), properties_of(message, header, now, expire), message.body, rest))
            if not names:
                exchange = layout.name(self._spec.origin)
                found.append(Publication(exchange, message.route, properties_of(message, header, now, expire), message.body))
        return found

    async def _limited(self, messages: Sequence[Message], publications: Sequence[Publication], wait: float) -> list[str | None]:
        """Of a queue that is its own source: there is one publication for each message."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        self._check_size(messages)
        into = dict.fromkeys(range(len(messages)), False)
        while True:
            left = [i for i, is_in in into.items() if not is_in]
            fitting = left[: await self._room(len(left))]
            outcomes = await self._copier.put([publications[i] for i in fitting], max(0.0, until - loop.time()))
            into |= {i: found == "in" for i, found in zip(fitting, outcomes, strict=True)}
            if all(into.values()) or self._spec.limit.policy == "drop-newest":
                return [message.id if into[i] else None for i, message in enumerate(messages)]
            if loop.time() >= until:
                raise _too_full(self._spec, wait, sum(into.values()), len(messages))
            await asyncio.sleep(_ROOM)

    async def _room(self, wanted: int) -> int:
        """How many of them fit; of push-back, all or none. Only the broker knows bytes, and it may take a few more."""
        most = self._spec.limit.messages
        if most is None:
            return wanted
        room = max(0, most - await self._ready())
        return room if self._spec.limit.policy == "drop-newest" or wanted <= room else 0

    def _check_size(self, messages: Sequence[Message]) -> None:
        limit, size = self._spec.limit, sum(len(message.body) for message in messages)
        never = (limit.messages is not None and len(messages) > limit.messages) or (limit.bytes is not None and size > limit.bytes)
        if never and limit.policy == "push-back":
            raise too_large(self._spec)


def _too_full(spec: QueueSpec, wait: float, sent: int, all_: int) -> Full:
    error = full(spec, wait)
    if not sent:
        return error
    return Full(error.what, f"waited {wait:g} seconds for room; {sent:,} of {all_:,} messages are in", hint=error.hint)


def _check_returned(
    outcomes: Sequence[Outcome], messages: Sequence[Message], targets: Sequence[Sequence[str]], spec: QueueSpec
) -> None:
    of = [message for message, names in zip(messages, targets, strict=True) for _ in names or [""]]
    returned = [message for message, found in zip(of, outcomes, strict=True) if found == "returned"]
    if returned:
        error = unroutable(returned[0], spec.origin)
        raise Unroutable(error.what, f"{len(returned):,} of {len(messages):,} messages were not sent", hint=error.hint)
