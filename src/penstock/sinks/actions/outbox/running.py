"""A sender in a thread of its own, from the start of a flow to its end."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from time import monotonic

from penstock.errors import Fenced, Passing, SinkError
from penstock.sinks.actions.outbox.sender import LOOK, Sender
from penstock.sinks.actions.outbox.sending import Sending


class Running:
    """Makes the steps of a sender until it is stopped. What it fails on is raised to the flow with the next epoch.
    sender_in: the sender whose calls run in this pool."""

    def __init__(self, sender_in: Callable[[Executor], Sender], sending: Sending, name: str) -> None:
        self._pool, self._closing = ThreadPoolExecutor(sending.at_once, f"act-{name}"), sending.closing.total_seconds()
        self._sender = sender_in(self._pool)
        self._broken: BaseException | None = None
        self._ends: float | None = None  # when a stop is to be over
        self._thread = threading.Thread(target=self._run, name=f"send-{name}", daemon=True)
        self._thread.start()

    def told(self) -> None:
        """There are new intents."""
        self._sender.changed.set()

    def check(self) -> None:
        """Raises what ended the sender; that a later start took over, the outbox itself will say."""
        broken = self._broken
        if isinstance(broken, Exception):
            if not isinstance(broken, Fenced):
                raise SinkError(f"the sender of actions has ended: {broken}", hint="run again") from broken
        elif broken is not None:
            raise broken

    def stop(self) -> None:
        """Goes on until all that can be sent now is sent, for as long as `closing` says; what is left, the next start sends."""
        self._ends = monotonic() + self._closing
        self.told()
        self._thread.join()
        self._pool.shutdown()

    def _run(self) -> None:
        try:
            self._send()
            self._pool.shutdown()  # what is under way is waited for: every action has a time-out
            self._sender.settle()
        except BaseException as error:
            self._broken = error

    def _send(self) -> None:
        checked = float("-inf")
        while True:
            ends = self._ends
            if monotonic() - checked >= LOOK:
                self._sender.check_current()
                checked = monotonic()
            wait = self._step()
            if ends is not None and (self._sender.idle() or monotonic() >= ends):
                return
            self._sender.changed.wait(wait)

    def _step(self) -> float:
        try:
            return self._sender.step()
        except Passing:  # a full disk, a broker that is away: the outcomes are noted when it takes them again
            return LOOK
