"""What becomes of deliveries, one call at a time."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from penstock.core.time import micros
from penstock.queue.checks import readable
from penstock.queue.port import QueueSpec, Settlement
from penstock.queue.rabbitmq.amqp.channel import NOT_FOUND, Closed, Lost
from penstock.queue.rabbitmq.receive.leases import Lending, Lent
from penstock.queue.rabbitmq.send.copier import Copier

Act = Callable[[Sequence[Lent]], Awaitable[None]]
_NOTHING = timedelta(0)


class Settling:
    """Settles deliveries of one queue."""

    def __init__(self, lending: Lending, copier: Copier, spec: QueueSpec) -> None:
        self._lending, self._copier, self._spec = lending, copier, spec

    async def settle(self, settlements: Sequence[Settlement]) -> list[str]:
        """The receipts that do not count any more; those of a channel that breaks meanwhile are among them."""
        known, lost, together = self._lending.lent([s.receipt for s in settlements]), list[str](), dict[Settlement, list[Lent]]()
        for settlement in settlements:
            lent = known.get(settlement.receipt) if settlement.fate == "extend" else known.pop(settlement.receipt, None)
            if lent is None:
                lost.append(settlement.receipt)
            else:  # those that have the same fate are settled together
                together.setdefault(settlement._replace(receipt=""), []).append(lent)
        for settlement, ones in together.items():
            lost += await self._carry_out(self._act(settlement), ones)
        return lost

    async def _carry_out(self, act: Act, lent: Sequence[Lent]) -> list[str]:
        try:
            await act(lent)
            return []
        except (Lost, Closed) as error:
            if isinstance(error, Closed) and error.code == NOT_FOUND:
                raise
            return [one.receipt for one in lent if not one.till.channel.open]

    def _act(self, settlement: Settlement) -> Act:
        if settlement.fate == "ack":
            return self._lending.done
        if settlement.fate == "extend":
            return lambda lent: self._extend(lent, settlement.delay)
        if settlement.fate == "reject":
            return lambda lent: self._reject(lent, readable(settlement.reason) or "it was rejected")
        return lambda lent: self._nack(lent, settlement)

    async def _extend(self, lent: Sequence[Lent], delay: timedelta | None) -> None:
        self._lending.extend(lent, (self._spec.lease if delay is None else delay).total_seconds())

    async def _reject(self, lent: Sequence[Lent], reason: str) -> None:
        await self._copier.bury([one.letter() for one in lent], reason)
        await self._lending.done(lent)

    async def _nack(self, lent: Sequence[Lent], settlement: Settlement) -> None:
        pause = self._spec.retry if settlement.delay is None else settlement.delay
        if pause == _NOTHING:
            await (self._give_back(lent, settlement) if settlement.tried else self._lending.untried(lent))
            return
        over = [one for one in lent if settlement.tried and one.attempt >= self._spec.tries]
        await self._give_back(over, settlement)
        resting = [one for one in lent if one not in over]
        letters = [one.letter(one.attempt if settlement.tried else one.attempt - 1) for one in resting]
        await self._copier.rest(letters, self._copier.now() + micros(pause))
        await self._lending.done(resting)

    async def _give_back(self, lent: Sequence[Lent], settlement: Settlement) -> None:
        await self._lending.give_back(lent, readable(settlement.reason) or "it was given back")
