"""Copies messages of a queue: to delay them, to requeue them with a count, to the dead letters. The copy is confirmed first."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from penstock.errors import LogError
from penstock.queue.dead_letters import as_dead_letter
from penstock.queue.port import Message, QueueSpec
from penstock.queue.rabbitmq.amqp.connection import Connection
from penstock.queue.rabbitmq.amqp.envelope import MessageHeader, properties_of
from penstock.queue.rabbitmq.layout import Layout
from penstock.queue.rabbitmq.send.publication import Outcome, Publication
from penstock.queue.rabbitmq.send.publisher import Publisher

PATIENCE = 5.0  # seconds for which a broker short of memory may keep a settlement waiting


class CopiedMessage(NamedTuple):
    """A message, its header, and how often it was delivered."""

    message: Message
    header: MessageHeader
    tries: int


class Copier:
    """Of one queue. LogError, or Full, if the broker does not take the copies."""

    def __init__(
        self,
        connection: Connection,
        publisher: Publisher,
        layout: Layout,
        spec: QueueSpec,
        now: Callable[[], int],
        counts: Counter[str],
    ) -> None:
        self.layout, self.now, self.name = layout, now, layout.name(spec.name)
        self._connection, self._publisher, self._spec, self._counts = connection, publisher, spec, counts

    async def dead_letter(self, copies: Sequence[CopiedMessage], reason: str) -> None:
        """To the dead letters, as they look everywhere."""
        now, dead, publications = self.now(), self.layout.name(self._spec.dead_letters), list[Publication]()
        for message, header, count in copies:
            copy = as_dead_letter(message, self._spec.name, f"{self._spec.name}/{message.id}", count, reason, now)
            publications.append(
                Publication("", dead, properties_of(copy, MessageHeader(header.key, header.route, now), now), message.body)
            )
        outcomes = await self.put(publications)
        if "returned" in outcomes:  # somebody deleted the queue of them
            channel = await self._connection.channel()
            await self.layout.declare_dead_letters(channel, self._spec.dead_letters)
            await channel.close()
            outcomes = await self.put(publications)
        _all_in(outcomes, dead)
        self._counts["dead"] += len(copies)

    async def requeue(self, copies: Sequence[CopiedMessage]) -> list[bool]:
        """To the end of the queue, with the count they have; whether each of them is in."""
        now = self.now()
        publications = [Publication("", self.name, self._counted(copy, now, due=0), copy.message.body) for copy in copies]
        return [outcome == "in" for outcome in await self.put(publications)]

    async def delay(self, copies: Sequence[CopiedMessage], due: int | None = None) -> None:
        """Out of the queue until then, or until each of them is due."""
        now, publications = self.now(), list[Publication]()
        for copy in copies:
            at = copy.header.due if due is None else due
            publications.append(Publication("", self.name, self._counted(copy, now, at), copy.message.body, max(1, at - now)))
        _all_in(await self.put(publications), self.name)

    async def put(self, publications: Sequence[Publication], wait: float | None = None) -> list[Outcome]:
        """Publishes them, those with a delay through the exchange that delays them."""
        if not publications:
            return []
        wait = PATIENCE if wait is None else wait
        if not any(publication.delay for publication in publications):
            return await self._publisher.publish(publications, wait)
        outcomes = await self._publisher.publish(await self._delayed(publications), wait)
        if any(found == "returned" and publication.delay for found, publication in zip(outcomes, publications, strict=True)):
            self.layout.forget()  # somebody deleted the exchanges: they are made again
            outcomes = await self._publisher.publish(await self._delayed(publications), wait)
        return outcomes

    async def _delayed(self, publications: Sequence[Publication]) -> list[Publication]:
        channel = await self._connection.channel()
        delayed = []
        for publication in publications:
            if publication.delay:
                publication.properties.expiration = None  # the delay is not cut short by its expiry
                publication = publication._replace(
                    exchange=await self.layout.delay_exchange(channel, -(-publication.delay // 1000))
                )
            delayed.append(publication)
        await channel.close()
        return delayed

    def _counted(self, copy: CopiedMessage, now: int, due: int) -> Any:
        header = replace(copy.header, due=due, tries=copy.tries)
        return properties_of(copy.message, header, now, expire=self._spec.limit.policy != "drop-oldest")


def _all_in(outcomes: Sequence[Outcome], queue: str) -> None:
    missing = [outcome for outcome in outcomes if outcome != "in"]
    if missing:
        raise LogError(f"RabbitMQ's queue {queue} does not take {len(missing)} of {len(outcomes)} messages: {missing[0]}")
