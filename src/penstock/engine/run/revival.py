"""The JVM of a run is watched: one that has ended is started again, a stated number of times (G30)."""

import threading
import time
from collections import deque
from collections.abc import Callable

from penstock.engine.spark import jvm
from penstock.engine.spark.session import forget
from penstock.errors import EngineError

MOST, WITHIN = 3, 600.0  # new JVMs in so many seconds; one more end is the end of the run


class Watch:
    """Of one process, for all flows that it runs."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._ends: deque[float] = deque()
        self.guard = threading.RLock()  # held while a new JVM is started: nobody else uses Spark meanwhile

    def ended(self) -> bool:
        """Whether the JVM has ended since the last look: what Spark kept of it is forgotten, and the next use starts another.
        EngineError if that happens too often."""
        with self.guard:
            code = jvm.ended()
            if code is None:
                return False
            now = time.monotonic()
            self._ends.append(now)
            while self._ends[0] < now - WITHIN:
                self._ends.popleft()
            if len(self._ends) > MOST:
                raise EngineError(
                    f"Spark's JVM has ended {len(self._ends)} times within {WITHIN / 60:.0f} minutes",
                    f"the last time with code {code}",
                    hint="nothing is lost: run again. Code -9 is often a machine without memory: --conf spark.driver.memory=…",
                )
            self._say(f"Spark's JVM has ended with code {code}; starting another")
            forget()
            return True
