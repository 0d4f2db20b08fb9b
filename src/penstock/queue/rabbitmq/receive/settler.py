"""Settles deliveries: acked, given back, rejected, extended."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from penstock.core.time import micros
from penstock.queue.checks import readable
from penstock.queue.port import QueueSpec, Settlement
from penstock.queue.rabbitmq.amqp.channel import NOT_FOUND, Closed, Lost
from penstock.queue.rabbitmq.receive.leases import Lease, Leases
from penstock.queue.rabbitmq.send.copier import Copier

Act = Callable[[Sequence[Lease]], Awaitable[None]]
_NOTHING = timedelta(0)


class Settler:
    """Of one queue."""

    def __init__(self, leases: Leases, copier: Copier, spec: QueueSpec) -> None:
        self._leases, self._copier, self._spec = leases, copier, spec

    async def settle(self, settlements: Sequence[Settlement]) -> list[str]:
        """The receipts that do not count any more; those of a channel that breaks meanwhile are among them."""
        known, lost, together = self._leases.running([s.receipt for s in settlements]), list[str](), dict[Settlement, list[Lease]]()
        for settlement in settlements:
            leases = known.get(settlement.receipt) if settlement.fate == "extend" else known.pop(settlement.receipt, None)
            if leases is None:
                lost.append(settlement.receipt)
            else:  # those that have the same fate are settled together
                together.setdefault(settlement._replace(receipt=""), []).append(leases)
        for settlement, ones in together.items():
            lost += await self._carry_out(self._act(settlement), ones)
        return lost

    async def _carry_out(self, act: Act, leases: Sequence[Lease]) -> list[str]:
        try:
            await act(leases)
            return []
        except (Lost, Closed) as error:
            if isinstance(error, Closed) and error.code == NOT_FOUND:
                raise
            return [one.receipt for one in leases if not one.channel.amqp.open]

    def _act(self, settlement: Settlement) -> Act:
        if settlement.fate == "ack":
            return self._leases.done
        if settlement.fate == "extend":
            return lambda leases: self._extend(leases, settlement.delay)
        if settlement.fate == "reject":
            return lambda leases: self._reject(leases, readable(settlement.reason) or "it was rejected")
        return lambda leases: self._nack(leases, settlement)

    async def _extend(self, leases: Sequence[Lease], delay: timedelta | None) -> None:
        self._leases.extend(leases, (self._spec.lease if delay is None else delay).total_seconds())

    async def _reject(self, leases: Sequence[Lease], reason: str) -> None:
        await self._copier.dead_letter([one.copy() for one in leases], reason)
        await self._leases.done(leases)

    async def _nack(self, leases: Sequence[Lease], settlement: Settlement) -> None:
        pause = self._spec.retry if settlement.delay is None else settlement.delay
        if pause == _NOTHING:
            await (self._give_back(leases, settlement) if settlement.tried else self._leases.untried(leases))
            return
        over = [one for one in leases if settlement.tried and one.attempt >= self._spec.tries]
        await self._give_back(over, settlement)
        resting = [one for one in leases if one not in over]
        copies = [one.copy(one.attempt if settlement.tried else one.attempt - 1) for one in resting]
        await self._copier.delay(copies, self._copier.now() + micros(pause))
        await self._leases.done(resting)

    async def _give_back(self, leases: Sequence[Lease], settlement: Settlement) -> None:
        await self._leases.give_back(leases, readable(settlement.reason) or "it was given back")
