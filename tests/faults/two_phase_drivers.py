"""Two drivers of one sink of two databases at once, step by step: a seed or a script says who speaks next to a database."""

import random
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from penstock.errors import Mismatch, SinkUnavailable
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.port import Note
from penstock.sinks.stores.sql.postgres import PostgresDefinition
from penstock.sinks.stores.two_phase.gid import Attempt, Gid
from penstock.sinks.stores.two_phase.postgres import PostgresParticipant, PreparedTransaction
from penstock.testing.contracts.sink import EPOCHS, SPEC, delivery, staged_epochs
from two_phase_pair import Pair, appending

LIFE, TRIES = "life", 60
MIDDLE = 60  # steps in which a driver alone has delivered nearly everything


class Turns(ABC):
    """One of two drivers moves at a time: before each step somebody says which."""

    def __init__(self) -> None:
        self._changed, self._left, self._turn = threading.Condition(), {1, 2}, 1

    def step(self, driver: int, what: str) -> None:
        """Called before a driver does something; it waits for its turn."""
        with self._changed:
            if self._turn == driver and self._left == {1, 2}:
                self._turn = self.chosen(driver, what)
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == driver)

    def over(self, driver: int) -> None:
        """The driver has come to its end."""
        with self._changed:
            self._left -= {driver}
            self._turn = 3 - driver
            self._changed.notify_all()

    @abstractmethod
    def chosen(self, driver: int, what: str) -> int:
        """Who moves, now that this driver is about to do this."""


class Chance(Turns):
    """A seed says who moves. The second driver comes when the first is at work."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance = random.Random(seed)
        self._late = self._chance.randrange(MIDDLE)  # steps of the first driver before the second one begins
        self._staying = self._chance.choice([0.4, 0.6, 0.8])  # how likely a driver is to go on

    def chosen(self, driver: int, what: str) -> int:
        self._late -= 1
        return driver if self._late > 0 or self._chance.random() < self._staying else self._chance.choice([1, 2])


Move = tuple[int, str, int]  # a driver, and until what for how many times


class Script(Turns):
    """Each move lasts until its driver is about to do something for the n-th time. Behind the last one the first driver goes on."""

    def __init__(self, moves: Sequence[Move]) -> None:
        super().__init__()
        self._moves, self._seen = [*moves], Counter[tuple[int, str]]()
        self._turn = moves[0][0]

    def chosen(self, driver: int, what: str) -> int:
        self._seen[driver, what] += 1
        if self._moves and self._moves[0] == (driver, what, self._seen[driver, what]):
            self._moves.pop(0)
            return self._moves[0][0] if self._moves else 1
        return driver


class Watch:
    """What became of every attempt in each database; notes where an epoch was visible in one that the other could still lose."""

    def __init__(self) -> None:
        self.prepared: dict[str, Attempt] = {}  # database -> the transaction that is prepared there
        self.committed: dict[Attempt, set[str]] = {}
        self.rolled_back: dict[Attempt, set[str]] = {}
        self.torn: list[str] = []

    def finished(self, where: str, committed: bool) -> None:
        attempt = self.prepared.pop(where)
        done = self.committed if committed else self.rolled_back
        done.setdefault(attempt, set()).add(where)
        if committed and any(other not in self.committed[attempt] and self.prepared.get(other) != attempt for other in ("0", "1")):
            self.torn.append(f"{attempt} was committed in {where} alone")
        if attempt in self.committed and attempt in self.rolled_back:
            self.torn.append(f"{attempt} was committed in one and rolled back in the other")


class Stepping(PostgresParticipant):
    """Waits for its turn at every word to its database, and tells what it did there."""

    def __init__(self, definition: PostgresDefinition, spec: SinkSpec, generation: int, turns: Turns, watch: Watch) -> None:
        super().__init__(definition, spec)
        self.generation, self.turns, self.watch = generation, turns, watch
        self.where = "1" if "/second" in definition.url else "0"
        self.trying: Attempt | None = None

    def gid(self, attempt: Attempt) -> Gid:
        self.trying = attempt
        return super().gid(attempt)

    def step(self, what: str) -> None:
        self.turns.step(self.generation, f"{what} {self.where}")

    def open(self) -> None:
        self.step("open")
        super().open()

    @contextmanager
    def transaction(self) -> Iterator[PreparedTransaction]:
        with super().transaction() as begun:
            self.step("begin")
            yield SteppingTransaction(begun, self)

    def prepared(self) -> Sequence[Gid]:
        self.step("prepared")
        return super().prepared()

    def kept(self) -> Note | None:
        self.step("kept")
        return super().kept()

    def commit(self, gid: Gid) -> bool:
        self.step("commit")
        done = super().commit(gid)
        if done:
            self.watch.finished(self.where, True)
        return done

    def roll_back(self, gid: Gid) -> bool:
        self.step("roll_back")
        done = super().roll_back(gid)
        if done:
            self.watch.finished(self.where, False)
        return done


class SteppingTransaction(PreparedTransaction):
    def __init__(self, begun: PreparedTransaction, participant: Stepping) -> None:
        vars(self).update(vars(begun))
        self.participant = participant

    def note(self) -> Note | None:
        self.participant.step("note")
        return super().note()

    def keep(self, note: Note) -> None:
        self.participant.step("keep")
        super().keep(note)

    def prepare(self, gid: Gid) -> None:
        self.participant.step("prepare")
        super().prepare(gid)
        assert self.participant.trying
        self.participant.watch.prepared[self.participant.where] = self.participant.trying


def drive(pair: Pair, generation: int, participate: Callable[..., Stepping]) -> str:
    """As the engine does: what a driver came to."""
    sink = pair.sink(appending(SPEC), staged_epochs(EPOCHS), participate=participate)
    try:
        for _ in range(TRIES):
            try:
                for epoch in range(sink.open(LIFE, generation) + 1, max(EPOCHS) + 1):
                    sink.deliver(delivery(epoch, generation))
                return "done"
            except SinkUnavailable:
                continue
            except Mismatch:
                return "replaced"
        return "gave up"
    finally:
        sink.close()


def together(pair: Pair, turns: Turns, kind: type[Stepping] = Stepping) -> tuple[dict[int, str], Watch]:
    """An old driver and its successor, both from the beginning to the end."""
    watch, came = Watch(), dict[int, str]()

    def run(generation: int) -> None:
        try:
            turns.step(generation, "start")
            came[generation] = drive(pair, generation, lambda *given: kind(*given, generation, turns, watch))
        except Exception as error:
            came[generation] = repr(error)
        finally:
            turns.over(generation)

    threads = [threading.Thread(target=run, args=(generation,)) for generation in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return came, watch
