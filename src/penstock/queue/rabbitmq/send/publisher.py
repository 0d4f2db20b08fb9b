"""Publishes messages: the broker confirms each, refuses it, or returns it because no queue takes it.

What was not confirmed when the connection broke is sent again with its id: it may be there twice, but is never missing."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.errors import Full
from penstock.queue.rabbitmq.amqp.channel import Channel, Closed, Lost
from penstock.queue.rabbitmq.amqp.connection import Connection
from penstock.queue.rabbitmq.amqp.library import library, unreachable
from penstock.queue.rabbitmq.send.publication import Outcome, Publication, check_blame, parts_of, unknown

_FRESH = 0.1  # seconds for which a confirmation tells that the broker takes messages
_NOWHERE = "penstock.nowhere"  # no queue has this name
_PAUSE = 0.05


class _Part:
    """Parcels that are waited for together."""

    def __init__(self, left: int, done: "asyncio.Future[Any]") -> None:
        self.left, self.done = left, done


class _Sent(NamedTuple):
    publication: Publication
    place: int
    outcomes: list[Outcome | None]
    part: _Part


class Publisher:
    """One confirmed channel of a connection that only sends: a broker short of memory stops reading from such."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self._tag, self._confirmed = 0, 0.0
        self._sent: dict[int, _Sent] = {}

    async def publish(self, publications: Sequence[Publication], wait: float = 0.0) -> list[Outcome]:
        """What became of each. Full if the broker takes nothing for `wait` seconds, because its memory or its disk is full."""
        loop = asyncio.get_running_loop()
        until, patience = loop.time() + wait, loop.time() + self._connection.settings.patience
        outcomes: list[Outcome | None] = [None] * len(publications)
        while None in outcomes:
            try:
                channel = await self._open()
                await self._canary(channel, until, wait)
                for part in parts_of(publications, [i for i, found in enumerate(outcomes) if found is None]):
                    await self._send(channel, publications, part, outcomes, until, wait)
            except (Lost, Closed) as error:
                if isinstance(error, Closed):
                    check_blame(error, publications, outcomes)
                if loop.time() > patience:
                    raise unreachable(self._connection.settings.where, unknown(outcomes)) from error
                await asyncio.sleep(_PAUSE)
        return [found for found in outcomes if found is not None]

    async def _open(self) -> Channel:
        async with self._opening:
            if self._channel is None or not self._channel.open:
                channel = await self._connection.channel()
                self._sent, self._tag, self._confirmed = {}, 0, 0.0
                await channel.ask("confirm_delivery", self._on_confirm)
                channel.tell("add_on_return_callback", self._on_return)
                self._channel = channel
            return self._channel

    async def _canary(self, channel: Channel, until: float, wait: float) -> None:
        """Sends a message for nobody first: a broker that is short of memory blocks before it gets a message that counts."""
        loop = asyncio.get_running_loop()
        if self._connection.blocked or loop.time() - self._confirmed > _FRESH:
            ahead = Publication(
                "", _NOWHERE, library().BasicProperties(), b"?"
            )  # RabbitMQ stops before a body: there has to be one
            if not await self._connection.unblocked(until - loop.time()):
                raise self._blocked(wait, "nothing of this was sent")
            part = self._put(channel, [ahead], [0], [None], mandatory=False)
            await self._confirm(part, until, wait, "nothing of this was sent")

    async def _send(
        self,
        channel: Channel,
        publications: Sequence[Publication],
        indexes: Sequence[int],
        outcomes: list[Outcome | None],
        until: float,
        wait: float,
    ) -> None:
        part = self._put(channel, publications, indexes, outcomes)
        await self._confirm(part, until, wait, unknown(outcomes))

    async def _confirm(self, part: _Part, until: float, wait: float, left: str) -> None:
        """Waits for all of them; while the broker takes nothing, no longer than until then."""
        loop = asyncio.get_running_loop()
        while not part.done.done():
            await asyncio.wait([part.done], timeout=_PAUSE if self._connection.blocked else 1.0)
            if not part.done.done() and self._connection.blocked and loop.time() >= until:
                raise self._blocked(wait, left)
        part.done.result()

    def _put(
        self,
        channel: Channel,
        publications: Sequence[Publication],
        indexes: Sequence[int],
        outcomes: list[Outcome | None],
        mandatory: bool = True,
    ) -> _Part:
        part = _Part(len(indexes), channel.future())
        for index in indexes:
            publication = publications[index]
            self._tag += 1
            self._sent[self._tag] = _Sent(publication, index, outcomes, part)
            channel.tell(
                "basic_publish",
                publication.exchange,
                publication.routing_key,
                publication.body,
                publication.properties,
                mandatory=mandatory,
            )
        return part

    def _on_confirm(self, frame: Any) -> None:
        """The broker confirms, or refuses, one message or all up to one."""
        self._confirmed = asyncio.get_running_loop().time()
        method = frame.method
        outcome: Outcome = "in" if isinstance(method, library().spec.Basic.Ack) else "refused"
        for tag in self._up_to(method.delivery_tag) if method.multiple else [method.delivery_tag]:
            sent = self._sent.pop(tag, None)
            if sent is None:
                continue
            sent.outcomes[sent.place] = sent.outcomes[sent.place] or outcome
            sent.part.left -= 1
            if not sent.part.left and not sent.part.done.done():
                sent.part.done.set_result(None)

    def _up_to(self, last: int) -> list[int]:
        tags = []
        for tag in self._sent:  # in the order sent
            if tag > last:
                break
            tags.append(tag)
        return tags

    def _on_return(self, _: Any, method: Any, properties: Any, __: bytes) -> None:
        """No queue took it. This comes before it is confirmed."""
        wanted = (method.exchange, method.routing_key, properties.message_id)
        for sent in self._sent.values():
            publication = sent.publication
            here = (publication.exchange, publication.routing_key, publication.properties.message_id)
            if here == wanted and sent.outcomes[sent.place] is None:
                sent.outcomes[sent.place] = "returned"
                return

    def _blocked(self, wait: float, left: str) -> Full:
        return Full(
            f"RabbitMQ at {self._connection.settings.where} takes no messages: {self._connection.blocked}",
            f"waited {wait:g} seconds; {left}",
            hint="give it memory or disk, or wait longer (wait=); consumers go on",
        )
