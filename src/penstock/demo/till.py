"""The till of the demo's shop: sends what the customers do to the log while the clock runs, from a thread of its own."""

import threading
import time
from pathlib import Path

from penstock.demo.shop import Arrivals, Customers
from penstock.demo.topics import TOPICS
from penstock.log.open import open_log
from penstock.log.producer import Producer

SPEED = 12  # seconds of the shop's time in a second on the clock: a minute takes five seconds
RATE = 2_000  # orders in a second on the clock
TICK = 0.2


class Till:
    """Open from the start until `close`; counts what the log has acknowledged. The topics must be there."""

    def __init__(self, home: Path, rate: int = RATE) -> None:
        self.customers = Customers(rate / SPEED)
        self.orders = self.payments = 0
        self._producers = [Producer(open_log(home).topic(name)) for name in TOPICS]
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._sell, name="till", daemon=True)
        self._failure: Exception | None = None
        self._opened = time.monotonic()
        self._send(self.customers.until(TICK * SPEED))
        self._thread.start()

    def close(self) -> None:
        """Sells no more; returns once everything that was sold and paid is in the log."""
        self.halt()
        self.check()
        self._send(self.customers.rest())

    def halt(self) -> None:
        """Stops where it is."""
        self._closing.set()
        self._thread.join()

    def check(self) -> None:
        """Raises what went wrong in the thread."""
        if self._failure:
            raise self._failure

    def _sell(self) -> None:
        try:
            while not self._closing.wait(TICK):
                self._send(self.customers.until((time.monotonic() - self._opened) * SPEED))
        except Exception as error:
            self._failure = error

    def _send(self, arrivals: Arrivals) -> None:
        orders, payments = self._producers
        self.orders += orders.send_lines(arrivals.orders).rows
        self.payments += payments.send_lines(arrivals.payments).rows
