"""How far a flow has read, published to its log: `penstock group` shows it, and retention waits for it."""

import threading
import time
from collections.abc import Mapping

from penstock.engine.execute.program import Program
from penstock.engine.run.epoch.decision import Decision
from penstock.errors import PenstockError
from penstock.log.groups.port import FLOW, Groups, Source
from penstock.log.port import Log

EVERY = 1.0  # seconds between two notes: each is a durable write, and an older one only makes retention wait longer
LONGEST = 2.0  # seconds that the end of a run waits for its last note


class OffsetPublisher:
    """Notes what is decided: an epoch that is decided never reads its input again, whatever becomes of the process.

    A note is made beside the run, which never waits for it; one that fails, or is not made yet when the next is due, is made with a
    later epoch. The truth is in the flow's decisions, and this only a copy for others."""

    def __init__(self, log: Log, flow: str, every: float = EVERY) -> None:
        self._log, self._name, self._every = log, FLOW + flow, every
        self._groups: Groups | None = None
        self._published = float("-inf")
        self._noting: threading.Thread | None = None

    def publish(self, program: Program, decision: Decision, now: bool = False) -> None:
        moment = time.monotonic()
        if now:
            self.settle()  # a note that does not come to its end is not followed by another
        elif moment - self._published < self._every:
            return
        if self._noting is None or not self._noting.is_alive():
            self._published = moment
            self._noting = threading.Thread(target=self._note, args=(_reached(program, decision),), daemon=True)
            self._noting.start()
        if now:
            self.settle()

    def settle(self) -> None:
        """Waits for the note that is being made, for a while."""
        if self._noting is not None:
            self._noting.join(LONGEST)

    def _note(self, reached: Mapping[Source, Mapping[int, int]]) -> None:
        try:
            self._groups = self._groups or self._log.groups()
            for source, offsets in reached.items():
                self._groups.put(self._name, source, offsets)
        except PenstockError:
            self._published = float("-inf")


def _reached(program: Program, decision: Decision) -> dict[Source, dict[int, int]]:
    """The next offset of every partition; of a topic that is read twice, that of the slower reader."""
    out: dict[Source, dict[int, int]] = {}
    for name, state in decision.sources.items():
        spec = program.sources[name]
        if spec.static or not state.topic_id:
            continue
        known = out.setdefault(Source(spec.topic, state.topic_id, len(state.partitions)), {})
        for number, partition in state.partitions.items():
            known[number] = min(partition.next, known.get(number, partition.next))
    return out
