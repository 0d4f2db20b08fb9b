"""Decisions of a small flow, and a sink in memory, for tests of delivery."""

from collections.abc import Callable

from penstock.engine.run.epoch.decision import Decision, Decisions, PartitionState, SourceState
from penstock.engine.state.refs import RunRef, StagedRef
from penstock.sinks.port import Delivery
from penstock.storage.memory import MemoryStorage

LIFE = "a" * 32
TOPICS = {"orders": "orders"}


def decided(epoch: int, state: tuple[str, ...] = ()) -> Decision:
    """An epoch with one staged file for `out` and these files of state."""
    return Decision(
        flow="shop",
        incarnation=LIFE,
        generation=1,
        epoch=epoch,
        clock=epoch,
        fingerprint="",
        buckets=1,
        sources={"orders": SourceState("id", {0: PartitionState(epoch + 1)})},
        ranges={},
        marks=(),
        frontiers={"sales": 100 + epoch},
        state=tuple(RunRef("sales", 0, "windows", 0, 0, file, 0, 1) for file in state),
        staged=(StagedRef("out", f"staged/{epoch}-out.arrow", 1, 1),),
        fates={},
    )


class Memory:
    """A sink that remembers what it was given. `hook` runs before each epoch is taken."""

    def __init__(self, has: int = -1, hook: Callable[[int], None] = lambda epoch: None) -> None:
        self.has, self.hook = has, hook
        self.taken: list[Delivery] = []
        self.closed = False

    def open(self, incarnation: str, generation: int) -> int:
        return self.has

    def deliver(self, given: Delivery) -> None:
        self.hook(given.marker.epoch)
        self.taken.append(given)

    def close(self) -> None:
        self.closed = True

    @property
    def epochs(self) -> list[int]:
        return [d.marker.epoch for d in self.taken]


def kept(*epochs: int) -> Decisions:
    decisions = Decisions(MemoryStorage({"incarnation": LIFE.encode()}), "shop")
    for epoch in epochs:
        decisions.publish(decided(epoch))
    return decisions
