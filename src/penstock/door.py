"""The public Flow: the graph of flow/, with the verbs that run it. The engine is reached inside methods only."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.flow.graph import FlowGraph

if TYPE_CHECKING:
    from penstock.testing.driver import FlowTest


class Flow(FlowGraph):
    """A flow: describe it, then run it, or test it.

    >>> from penstock import Flow, Tumbling, agg
    >>> flow = Flow("shop")
    >>> orders = flow.stream("orders", "user_id long, amount double, at timestamp", time="at", lateness="10 seconds")
    >>> sales = orders.window(Tumbling("1 minute"), by="user_id").agg(total=agg.sum("amount"))
    >>> _ = sales.view("sales_per_minute")
    """

    def run(self, *, every: str | timedelta | None = None, **where: Any) -> None:
        """Until stopped: Ctrl-C or SIGTERM finishes the epoch and ends."""
        self._go("run", every, **where)

    def catch_up(self, **where: Any) -> None:
        """To the ends found at the start; flushes nothing, excuses empty partitions."""
        self._go("catch_up", None, **where)

    def drain(self, **where: Any) -> None:
        """Reads everything, marks every input +∞, closes what is open: ends the flow."""
        self._go("drain", None, **where)

    def test(self, **how: Any) -> "FlowTest":
        """The flow in a unit test: no broker, no waiting, time and crashes in the test's hands."""
        from penstock.testing.driver import FlowTest

        return FlowTest(self, **how)

    def _go(
        self,
        mode: str,
        every: str | timedelta | None,
        *,
        home: str | Path | None = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        max_rows: int | None = None,
        accept_gap: bool = False,
        log: str | None = None,
    ) -> None:
        from penstock.engine.run.service import Order, serve

        order = Order(mode, every, home, master, conf or {}, max_rows, accept_gap=accept_gap, log=log)
        serve([self], order)
