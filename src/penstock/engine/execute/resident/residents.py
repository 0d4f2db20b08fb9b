"""The driver's side: tasks that stay are started, given jobs, and given up when they do not answer."""

import pickle
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakKeyDictionary

from penstock.engine.execute.job import Job, Result
from penstock.engine.execute.placement import Placement
from penstock.engine.execute.resident.channel import MOST, Channel, Closed, Kind
from penstock.engine.execute.resident.listening import Listener, listener
from penstock.engine.execute.resident.worker import Endpoint, stay
from penstock.engine.spark.scratch import scratch
from penstock.engine.spark.settings import resident_slots
from penstock.errors import EngineError, PenstockError, TornEpoch

HUNG = 10.0  # seconds without a heartbeat, after which a task is given up
START = 60.0  # seconds that an epoch waits for a task that was started for it
CALM = 30.0  # seconds behind a loss in which nobody waits
_LOOK = 0.2  # seconds between two looks whether the job of a task that is waited for has failed
TRIES, WITHIN = 5, 60.0  # jobs that may end without having been of use, in so many seconds: then no more are started


class Resident:
    """One task that stays, as its driver knows it. Used by one thread at a time."""

    def __init__(self, context: Any, listener: Listener) -> None:
        self._context, self._listener = context, listener
        self._channel: Channel | None = None
        self._arrivals: SimpleQueue[Channel] = SimpleQueue()
        self._group = f"penstock-resident-{uuid.uuid4().hex[:8]}"
        self.served = 0  # jobs
        self.fresh = True  # nobody has waited for it yet
        self._given_up = False
        self._job = threading.Thread(target=self._run_job, name=self._group, daemon=True)
        self._job.start()
        threading.Thread(target=self._accept, name=f"{self._group}-accept", daemon=True).start()

    def _accept(self) -> None:
        """In a thread of its own: strangers may connect, and say nothing for a while. A task that Spark has started anew connects
        again, and the newest counts."""
        with suppress(Closed):
            while True:
                channel = self._listener.accept()
                if channel:
                    self._arrivals.put(channel)

    def _run_job(self) -> None:
        """Spark's job, as long as it lasts: Spark places the task, and starts it anew where its process dies."""
        try:
            self._context.setJobGroup(self._group, "small epochs", interruptOnCancel=True)
            task = partial(_task, self._listener.endpoint)
            self._context.parallelize([0], 1).mapPartitionsWithIndex(task).collect()
        except Exception:  # whatever it was: epochs are Spark jobs of their own then, and tell the cause
            return

    @property
    def ended(self) -> bool:
        """Nothing more comes of it."""
        return self._given_up or not self._job.is_alive()

    def reached(self, patience: float = 0.0) -> bool:
        """Whether the task is connected; waits so many seconds for it, as long as its job goes on."""
        deadline, self.fresh = time.monotonic() + patience, False
        while not self._arrived(0.0) and not self._channel:
            left = deadline - time.monotonic()
            if left <= 0 or self.ended:
                return False
            self._arrived(min(left, _LOOK))
        return True

    def _arrived(self, patience: float) -> bool:
        """Takes the newest connection, if there is one."""
        arrived = False
        with suppress(Empty):
            while True:
                channel = self._arrivals.get(timeout=patience) if patience else self._arrivals.get_nowait()
                if self._channel:
                    self._channel.close()
                self._channel, arrived, patience = channel, True, 0.0
        return arrived

    def run(self, data: bytes) -> Result:
        """TornEpoch if the task has gone, does not answer any more, or has met with what nobody foresaw."""
        assert self._channel
        try:
            self._channel.send(Kind.JOB, data, HUNG)
            kind, answer = self._channel.receive(HUNG)
            while kind == Kind.HEARTBEAT:
                kind, answer = self._channel.receive(HUNG)
        except TimeoutError as error:
            self.close()
            raise TornEpoch(f"the resident task has not answered for {HUNG:.0f} seconds", hint="the epoch is run again") from error
        except Closed as error:
            self._channel.close()
            self._channel = None
            raise TornEpoch("the resident task has gone", str(error), hint="the epoch is run again") from error
        if kind == Kind.UNEXPECTED:
            raise TornEpoch("the resident task failed", answer.decode(errors="replace"), hint="the epoch is run again")
        self.served += 1
        found = pickle.loads(answer)  # noqa: S301  of our own task, which has proved that it knows the secret
        if isinstance(found, PenstockError):
            raise found
        assert isinstance(found, Result)
        return found

    def close(self) -> None:
        """The task ends; one that does not listen any more is killed by Spark."""
        self._given_up = True
        if self._channel:
            self._channel.close()
            self._channel = None
        self._listener.close()
        if self._job.is_alive():
            threading.Thread(target=self._cancel, daemon=True).start()

    def _cancel(self) -> None:
        self._job.join(1.0)
        if self._job.is_alive():
            with suppress(Exception):  # Spark itself may have gone, and its tasks with it
                self._context.cancelJobGroup(self._group)


def _task(endpoint: Endpoint, _: int, rows: Iterator[Any]) -> list[Any]:
    return stay(endpoint, rows)


class Residents:
    """Those of one Spark context. most: how many at once; refused: why there are none."""

    def __init__(self, context: Any, listen: Callable[[], Listener], most: int, say: Callable[[str], None]) -> None:
        self._context, self._listen, self._most, self._say = context, listen, most, say
        self._guard = threading.Lock()
        self._idle: list[Resident] = []
        self._count = 0
        self._lost, self._loss = False, float("-inf")  # whether the last epoch was, and when one was
        self._useless: list[float] = []  # when jobs have ended without having been of use
        self.refused = "" if most else "Spark has no slot to spare"

    @contextmanager
    def taken(self) -> Iterator[Resident | None]:
        """One that is connected and idle, for this thread alone; None where there is none just now. One that has just been started
        is waited for, but not behind a loss: then a Spark job is there sooner."""
        if self._lost:
            self._lost = False
            yield None
            return
        resident = self._take()
        waits = resident is not None and resident.fresh and time.monotonic() > self._loss + CALM
        try:
            yield resident if resident and resident.reached(START if waits else 0.0) else None
        except TornEpoch:
            self._lost, self._loss = True, time.monotonic()
            raise
        finally:
            if resident:
                self._put(resident)

    def _take(self) -> Resident | None:
        with self._guard:
            while self._idle:
                resident = self._idle.pop()
                if not resident.ended:
                    return resident
                self._count -= 1
                resident.close()
            if self._count >= self._most or self.refused:
                return None
            self._count += 1
        try:
            return Resident(self._context, self._listen())
        except EngineError as error:
            self._refuse(error.what)
            with self._guard:
                self._count -= 1
            return None

    def _put(self, resident: Resident) -> None:
        with self._guard:
            if not resident.ended:
                self._idle.append(resident)
                return
            self._count -= 1
            if not resident.served:
                now = time.monotonic()
                self._useless = [at for at in self._useless if at > now - WITHIN] + [now]
        resident.close()
        if len(self._useless) >= TRIES:
            self._refuse(f"{TRIES} of them have ended without having been of use")

    def _refuse(self, why: str) -> None:
        if not self.refused:
            self.refused = why
            self._say(f"no resident tasks, every epoch is a Spark job: {why}")

    def release(self) -> None:
        """Those that are idle end: Spark has their slots for what comes now."""
        with self._guard:
            idle, self._idle = self._idle, []
            self._count -= len(idle)
        for resident in idle:
            resident.close()


_KNOWN: "WeakKeyDictionary[Any, Residents]" = WeakKeyDictionary()
_GUARD = threading.Lock()


def residents_of(context: Any, local: bool, say: Callable[[str], None]) -> Residents:
    """Those of a Spark context, whichever runs of this process use it: a run finds the tasks of the one before."""
    with _GUARD:
        if context not in _KNOWN:
            listen = partial(listener, local, scratch(), dict(context.getConf().getAll()))
            _KNOWN[context] = Residents(context, listen, resident_slots(context, local), say)
        return _KNOWN[context]


class ResidentTask:
    """The placement of small epochs: a resident task where there is one, else a Spark job."""

    def __init__(self, residents: Residents, otherwise: Placement) -> None:
        self._residents, self._otherwise = residents, otherwise

    def run(self, job: Job) -> Result:
        with self._residents.taken() as resident:
            if resident:
                data = pickle.dumps(job)
                if len(data) <= MOST:
                    return resident.run(data)
        return self._otherwise.run(job)
