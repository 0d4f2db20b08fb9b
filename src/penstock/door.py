"""The public Flow: the graph of flow/, with the verbs that run it. The engine is reached inside methods only."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.flow.graph import FlowGraph

if TYPE_CHECKING:
    from penstock.engine.run.options import Mode
    from penstock.testing.driver import FlowTest


class Flow(FlowGraph):
    """A flow: describe it, then run it, or test it.

    >>> from penstock import Flow, Tumbling, agg
    >>> flow = Flow("shop")
    >>> orders = flow.stream("orders", "user_id long, amount double, at timestamp", time="at", lateness="10 seconds")
    >>> sales = orders.window(Tumbling("1 minute"), by="user_id").agg(total=agg.sum("amount"))
    >>> _ = sales.view("sales_per_minute")
    """

    def run(
        self,
        *,
        every: str | timedelta | None = None,
        home: str | Path | None = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        max_rows: int | None = None,
        accept_gap: bool = False,
        log: str | None = None,
    ) -> None:
        """Until stopped: Ctrl-C or SIGTERM finishes the epoch and ends.

        every: how long an epoch waits for the next, e.g. "1 second"; home: where state is kept; master and conf: Spark's;
        max_rows: of an epoch; accept_gap: go on although rows were removed before they were read; log: its URL."""
        self._go("run", every, home, master, conf, max_rows, accept_gap, log)

    def catch_up(
        self,
        *,
        home: str | Path | None = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        max_rows: int | None = None,
        accept_gap: bool = False,
        log: str | None = None,
    ) -> None:
        """To the ends found at the start; flushes nothing, excuses empty partitions. Arguments as those of `run`."""
        self._go("catch_up", None, home, master, conf, max_rows, accept_gap, log)

    def drain(
        self,
        *,
        home: str | Path | None = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        max_rows: int | None = None,
        accept_gap: bool = False,
        log: str | None = None,
    ) -> None:
        """Reads everything, marks every input +∞, closes what is open: ends the flow. Arguments as those of `run`."""
        self._go("drain", None, home, master, conf, max_rows, accept_gap, log)

    def test(self, *, buckets: int = 2, analyzer: Any = None) -> "FlowTest":
        """The flow in a unit test: no broker, no waiting, time and crashes in the test's hands. buckets: of its state; analyzer:
        what stands for Spark where an expression needs it."""
        from penstock.testing.driver import FlowTest

        return FlowTest(self, buckets=buckets, analyzer=analyzer)

    def _go(
        self,
        mode: "Mode",
        every: str | timedelta | None,
        home: str | Path | None,
        master: str | None,
        conf: Mapping[str, str] | None,
        max_rows: int | None,
        accept_gap: bool,
        log: str | None,
    ) -> None:
        from penstock.engine.run.options import RunOptions
        from penstock.engine.run.service import serve

        options = RunOptions(mode, every, home, master, conf or {}, max_rows, accept_gap=accept_gap, log=log)
        serve([self], options)
