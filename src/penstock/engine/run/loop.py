"""The loops around a driver: until stopped, to the ends found at the start, to the end of everything."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

from penstock.core.time import FOREVER
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.epoch.report import Report
from penstock.engine.run.waiting import Waiting, WaitMessages
from penstock.engine.source.spec import topic_of
from penstock.errors import Passing
from penstock.log.watching import watch

TARGET = 2.0  # seconds that an epoch should take while there is much to read
FIRST_BUDGET, LEAST_BUDGET, MOST_BUDGET = 2_000_000, 50_000, 20_000_000
IDLE_WAIT = 0.2  # seconds after which an idle run looks at the clock, and whether it is still the one; appends wake it sooner
REST = 0.05  # seconds that a run rests, at most, behind an epoch that took all there was

OnReport = Callable[[Report], None]


class Budget:
    """The row budget of an epoch, learned from how fast the last ones were."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most or MOST_BUDGET
        self.rows = min(FIRST_BUDGET, self.most)

    def learn(self, report: Report) -> None:
        if report.rows >= self.rows // 2 and report.seconds > 0:
            wanted = int(report.rows / report.seconds * TARGET)
            self.rows = min(self.most, MOST_BUDGET, max(LEAST_BUDGET, (self.rows + wanted) // 2))


def start(driver: Driver, stop: threading.Event, messages: WaitMessages | None = None) -> None:
    """Takes the flow; what may pass by itself, such as a full disk, is waited for, up to a minute."""
    waiting = Waiting(driver.plan.flow, stop, messages)
    while True:
        try:
            driver.start()
            return waiting.ended()
        except Passing as error:
            waiting.over(error)
            if stop.is_set():
                raise


def run(
    driver: Driver,
    stop: threading.Event,
    on_report: OnReport,
    every: float = 0.0,
    most: int | None = None,
    messages: WaitMessages | None = None,
) -> None:
    """Epoch after epoch until `stop` is set; the epoch under way is finished. messages: where it is said that a broker, a disk or
    somebody outside is waited for, for as long as it takes; None: that ends the run."""
    budget, waiting = Budget(most), Waiting(driver.plan.flow, stop, messages, None if messages else 0.0)
    with closing(_News(driver)) as news:
        while not stop.is_set():
            started = time.monotonic()
            try:
                report = driver.epoch(EpochRequest(rows=budget.rows))
            except Passing as error:
                waiting.over(error)
                continue
            waiting.ended()
            if report:
                budget.learn(report)
                on_report(report)
            took = time.monotonic() - started
            pause = max(every - took, rest(report, took))
            if pause > 0:
                stop.wait(pause)
            elif not report:
                news.wait(min(IDLE_WAIT, driver.due()))


class _News:
    """Waits for records that are worth an epoch. Which topics these are is known once they are there."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._topics = driver, driver.watched
        self._watch = watch(driver.context.log, self._topics)

    def wait(self, seconds: float) -> None:
        """It may return for nothing; so it does where others are watched from now on, as something may have come just before."""
        if self._driver.watched == self._topics:
            return self._watch.wait(seconds, self._driver.read_to())
        self._watch.close()
        self._topics = self._driver.watched
        self._watch = watch(self._driver.context.log, self._topics)
        return None

    def close(self) -> None:
        self._watch.close()


def rest(report: Report | None, took: float) -> float:
    """Behind an epoch that took all there was, as long as that has lasted: so that small epochs one behind the other take half of a
    run's time at most, and the next one takes more rows at once."""
    return min(took, REST) if report and not report.behind else 0.0


def catch_up(
    driver: Driver, stop: threading.Event, on_report: OnReport, most: int | None = None, messages: WaitMessages | None = None
) -> None:
    """To the ends found at the start; flushes nothing, excuses empty partitions. What may pass by itself is waited for, up to a
    minute in a row."""
    _until_quiet(driver, stop, on_report, False, most, messages)


def drain(
    driver: Driver, stop: threading.Event, on_report: OnReport, most: int | None = None, messages: WaitMessages | None = None
) -> None:
    """To the ends, then every input is marked +∞: all that is open closes."""
    catch_up(driver, stop, on_report, most, messages)
    if not stop.is_set():
        _until_quiet(driver, stop, on_report, True, most, messages)


def _until_quiet(
    driver: Driver, stop: threading.Event, on_report: OnReport, end: bool, most: int | None, messages: WaitMessages | None
) -> None:
    budget, waiting = Budget(most), Waiting(driver.plan.flow, stop, messages)
    request: EpochRequest | None = None
    while not stop.is_set():
        try:
            request = request or EpochRequest(stops=ends(driver), end=end)
            report = driver.epoch(replace(request, rows=budget.rows))
        except Passing as error:
            waiting.over(error)
            continue
        waiting.ended()
        if report is None:
            return
        budget.learn(report)
        on_report(report)


def ends(driver: Driver) -> dict[tuple[str, int], int]:
    """Where every partition of every source ends now."""
    out: dict[tuple[str, int], int] = {}
    for name, spec in driver.program.sources.items():
        if spec.static or spec.topic in driver.context.log.topics():
            out |= {(name, number): end.next for number, end in topic_of(spec, driver.context.log).ends().items()}
    return out


def ended(driver: Driver) -> bool:
    """Every input has been marked +∞."""
    last = driver.last
    return last is not None and all(s.used >= FOREVER for s in last.sources.values())


def side_by_side(work: Sequence[Callable[[], None]], stop: threading.Event) -> list[BaseException]:
    """Runs several flows at once, a thread each; when one fails the others finish their epoch and stop."""
    failures: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            failures.append(error)
            stop.set()

    threads = [threading.Thread(target=guarded, args=(task,), name=f"flow-{i}") for i, task in enumerate(work)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.1)
    finally:
        stop.set()  # an interrupted wait must not leave flows running
    return failures
