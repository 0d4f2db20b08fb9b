"""The course of the demo: the shop opens, the engine is killed twice in the middle of an epoch, the shop closes, the flows end."""

import time
from dataclasses import dataclass

from penstock.demo.cues import CUES, Cue, kill_at
from penstock.demo.engine import Engine
from penstock.demo.screen import Stage
from penstock.demo.till import Till
from penstock.demo.watch import Watch
from penstock.errors import EngineError

_LOOK = 0.25  # seconds between two looks
_WORTH_A_START = 12.0  # seconds that must be left for another start to show anything
_PATIENCE = 300.0  # seconds after which something is wrong, also on a machine busy with other things


@dataclass(frozen=True)
class Outcome:
    orders: int
    payments: int
    kills: int
    first_result: float | None  # seconds from `started`


class Story:
    """Runs once, with an engine that has just been started."""

    def __init__(self, engine: Engine, stage: Stage, seconds: float, started: float) -> None:
        self.engine, self.stage, self.seconds, self.started = engine, stage, seconds, started
        self.watch = Watch(engine.home)
        self.kills = 0
        self.doing = "starting"
        self.first_result: float | None = None
        self._expecting: tuple[Cue, int] | None = None  # a kill that the engine has not yet recovered from

    def tell(self) -> Outcome:
        till = Till(self.engine.home)
        try:
            self.stage.tell("the engine starts; rows wait in the log meanwhile")
            self.stage.tell("the shop is open: a minute there takes five seconds here")
            self._trade(till)
            till.close()
            self.stage.tell(f"the shop is closed: {till.orders:,} orders, {till.payments:,} payments", "good")
            self._drain(till)
            return Outcome(till.orders, till.payments, self.kills, self.first_result)
        finally:
            till.halt()
            self.watch.close()

    def _trade(self, till: Till) -> None:
        """Until the time is over and every kill has happened."""
        while self._left() > 0 or self.kills < len(CUES):
            self._step(till)
            if self.engine.was_killed():
                self._killed()
                if self.kills == len(CUES) and self._left() < _WORTH_A_START:
                    return
                self._restart()

    def _drain(self, till: Till) -> None:
        if self.engine.running:
            self.doing = "stopping"
            self.stage.tell("the engine finishes its epoch and stops")
            self.engine.stop()
        self.doing = "draining"
        self.stage.tell("starting once more, to read the rest and close every window")
        self.engine.start(drain=True)
        deadline = time.monotonic() + _PATIENCE
        while self.engine.running:
            self._step(till)
            if time.monotonic() > deadline:
                raise EngineError("the flows did not come to their end", hint=f"the engine's log is {self.engine.log}")
        self.engine.was_killed()
        self._step(till)
        self.doing = "done"
        self.stage.show(self.watch.look(), self.doing, till.orders)

    def _step(self, till: Till) -> None:
        till.check()
        sight = self.watch.look()
        for line in self.engine.said():
            if line.startswith("starting"):
                self.stage.tell(line)
        if sight.sales and self.first_result is None:
            self.first_result = time.monotonic() - self.started
            self.stage.tell(f"first result, {self.first_result:.1f} s after the start", "good")
        self._recovered()
        self.stage.show(sight, self.doing, till.orders)
        if time.monotonic() - self.started > self.seconds + _PATIENCE:
            raise EngineError("the engine takes too long", hint=f"its log is {self.engine.log}")
        time.sleep(_LOOK)

    def _restart(self) -> None:
        assert self._expecting
        self.stage.tell("starting again")
        self.doing = f"killed in epoch {self._expecting[1]}, starting again"
        self.engine.start(kill_at=kill_at(self.kills, self.seconds))

    def _killed(self) -> None:
        cue, sight = CUES[self.kills], self.watch.look()
        self.kills += 1
        epoch = sight.epoch if cue.decided else sight.epoch + 1
        self._expecting = (cue, epoch)
        self.stage.tell(cue.died.format(n=epoch, seen=sight.delivered), "bad")

    def _recovered(self) -> None:
        """Tells when the epoch that was cut short can be seen, and notices when a new engine works."""
        sight = self.watch.sight
        if self._expecting and sight.delivered >= self._expecting[1]:
            cue, epoch = self._expecting
            self._expecting = None
            self.stage.tell(cue.back.format(n=epoch), "good")
        if not self._expecting and sight.delivered >= 0 and self.doing not in ("draining", "done"):
            self.doing = "running"

    def _left(self) -> float:
        return self.seconds - (time.monotonic() - self.started)
