"""Messages that leave their queue as a copy: to rest, to be counted, to the dead letters. The copy is confirmed first."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from penstock.errors import LogError
from penstock.queue.dead_letters import as_dead_letter
from penstock.queue.port import Message, QueueSpec
from penstock.queue.rabbitmq.amqp.connection import Wire
from penstock.queue.rabbitmq.amqp.envelope import Said, properties_of
from penstock.queue.rabbitmq.layout import Layout
from penstock.queue.rabbitmq.send.publication import Outcome, Parcel
from penstock.queue.rabbitmq.send.publisher import Publisher

PATIENCE = 5.0  # seconds for which a broker short of memory may keep a settlement waiting


class Letter(NamedTuple):
    """A message that was lent so often."""

    message: Message
    said: Said
    tries: int


class Copier:
    """Puts messages of one queue in again, or away. LogError, or Full, if the broker does not take them."""

    def __init__(
        self, wire: Wire, publisher: Publisher, layout: Layout, spec: QueueSpec, now: Callable[[], int], counts: Counter[str]
    ) -> None:
        self.layout, self.now, self.name = layout, now, layout.name(spec.name)
        self._wire, self._publisher, self._spec, self._counts = wire, publisher, spec, counts

    async def bury(self, letters: Sequence[Letter], reason: str) -> None:
        """To the dead letters, as they look everywhere."""
        now, dead, parcels = self.now(), self.layout.name(self._spec.dead_letters), list[Parcel]()
        for message, said, count in letters:
            letter = as_dead_letter(message, self._spec.name, f"{self._spec.name}/{message.id}", count, reason, now)
            parcels.append(Parcel("", dead, properties_of(letter, Said(said.key, said.route, now), now), message.body))
        outcomes = await self.put(parcels)
        if "returned" in outcomes:  # somebody deleted the queue of them
            channel = await self._wire.channel()
            await self.layout.dead(channel, self._spec.dead_letters)
            await channel.close()
            outcomes = await self.put(parcels)
        _all_in(outcomes, dead)
        self._counts["dead"] += len(letters)

    async def again(self, letters: Sequence[Letter]) -> list[bool]:
        """To the end of the queue, with the count they have; whether each of them is in."""
        now = self.now()
        parcels = [Parcel("", self.name, self._counted(letter, now, due=0), letter.message.body) for letter in letters]
        return [outcome == "in" for outcome in await self.put(parcels)]

    async def rest(self, letters: Sequence[Letter], due: int | None = None) -> None:
        """Out of the queue until then, or until the time that each of them names."""
        now, parcels = self.now(), list[Parcel]()
        for letter in letters:
            at = letter.said.due if due is None else due
            parcels.append(Parcel("", self.name, self._counted(letter, now, at), letter.message.body, max(1, at - now)))
        _all_in(await self.put(parcels), self.name)

    async def put(self, parcels: Sequence[Parcel], wait: float | None = None) -> list[Outcome]:
        """Publishes them, those that have to rest where they rest for so long."""
        if not parcels:
            return []
        wait = PATIENCE if wait is None else wait
        if not any(parcel.rest for parcel in parcels):
            return await self._publisher.publish(parcels, wait)
        outcomes = await self._publisher.publish(await self._placed(parcels), wait)
        if any(found == "returned" and parcel.rest for found, parcel in zip(outcomes, parcels, strict=True)):
            self.layout.forget()  # somebody deleted the places: they are made again
            outcomes = await self._publisher.publish(await self._placed(parcels), wait)
        return outcomes

    async def _placed(self, parcels: Sequence[Parcel]) -> list[Parcel]:
        channel = await self._wire.channel()
        placed = []
        for parcel in parcels:
            if parcel.rest:
                parcel.properties.expiration = None  # it rests, however long it may live
                parcel = parcel._replace(exchange=await self.layout.rest(channel, -(-parcel.rest // 1000)))
            placed.append(parcel)
        await channel.close()
        return placed

    def _counted(self, letter: Letter, now: int, due: int) -> Any:
        said = replace(letter.said, due=due, tries=letter.tries)
        return properties_of(letter.message, said, now, expire=self._spec.limit.policy != "drop-oldest")


def _all_in(outcomes: Sequence[Outcome], queue: str) -> None:
    missing = [outcome for outcome in outcomes if outcome != "in"]
    if missing:
        raise LogError(f"RabbitMQ's queue {queue} does not take {len(missing)} of {len(outcomes)} messages: {missing[0]}")
