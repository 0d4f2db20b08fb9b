"""Captures in threads of this process: started together, ended together, and the first error that does not pass ends them all."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import MAX_KEPT, kind_of
from penstock.capture.registry import Captures
from penstock.capture.runner import CaptureRun, Progress
from penstock.errors import BadInput, NotFollowable
from penstock.log.port import Log

OnReport = Callable[[CaptureDefinition, Progress], None]


@dataclass
class Hosted:
    """One capture and its thread."""

    definition: CaptureDefinition
    run: CaptureRun
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    failure: BaseException | None = None
    thread: threading.Thread | None = None


class Host:
    """Runs captures of a home. limit: bytes of its log that a database may keep for one before that is a warning. on_failure:
    called from the thread of one that has failed."""

    def __init__(
        self, names: Sequence[str], log: Log, report: OnReport, limit: int | None = None, home: Path | None = None
    ) -> None:
        self._captures, self._options = Captures(home), {MAX_KEPT: limit} if limit else {}
        self.on_failure: Callable[[], None] = lambda: None
        self.hosted = [self._opened(name, log, report) for name in dict.fromkeys(names)]

    def start(self, catch_up: bool = False) -> None:
        for each in self.hosted:
            name = f"capture-{each.definition.name}"
            each.thread = threading.Thread(target=self._run, args=(each, catch_up), name=name, daemon=True)
            each.thread.start()

    def stop(self) -> None:
        """Each ends behind the batch that it is at."""
        for each in self.hosted:
            each.run.stop()

    @property
    def alive(self) -> bool:
        return any(each.thread and each.thread.is_alive() for each in self.hosted)

    @property
    def failure(self) -> BaseException | None:
        return next((each.failure for each in self.hosted if each.failure), None)

    def join(self) -> None:
        """Waits until all have ended; raises what has failed first. Whatever interrupts the wait stops them."""
        try:
            while self.alive:
                for each in self.hosted:
                    if each.thread:
                        each.thread.join(0.1)
        finally:
            self.stop()
        if self.failure:
            raise self.failure

    def _opened(self, name: str, log: Log, report: OnReport) -> Hosted:
        definition = self._captures.get(name)
        if not definition.prepared:
            raise NotFollowable(
                f"the database was not prepared to the end for capture {name!a}",
                hint=f"penstock cdc add {name} --tables … again goes on; penstock cdc remove {name} takes it back",
            )
        told = replace(definition, options={**definition.options, **self._options})
        engine = kind_of(definition.engine).open(told, self._captures.engine_storage(name))
        storage = self._captures.storage(name)
        return Hosted(definition, CaptureRun(definition, log, storage, engine, lambda progress: report(definition, progress)))

    def _run(self, hosted: Hosted, catch_up: bool) -> None:
        try:
            hosted.run.run(catch_up)
        except BaseException as error:
            hosted.failure = error
            self.stop()
            self.on_failure()
        finally:
            hosted.ended = time.monotonic()


def names_once(names: Sequence[str]) -> list[str]:
    """The names, each once; BadInput if there are none."""
    if not names:
        raise BadInput("which capture?", hint="penstock cdc run NAME; penstock cdc status shows those that are there")
    return list(dict.fromkeys(names))
