"""A capture as a reconcile needs it: its definition, the log, its directory, and how its engine is opened."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import kind_of
from penstock.capture.port import Engine
from penstock.capture.registry import Captures
from penstock.capture.runner import CaptureRun, Report, silent
from penstock.capture.writing.journal import Found, journal_topic, read_journal
from penstock.capture.writing.writer import nothing
from penstock.log.port import Log
from penstock.storage.port import Storage


@dataclass(frozen=True)
class Followed:
    """storage: the directory of the capture, whose lock is held by whoever writes its topics."""

    definition: CaptureDefinition
    log: Log
    storage: Storage
    engine: Callable[[], Engine]
    fail: Callable[[str], None] = nothing  # called at the crash points of its writer

    @property
    def name(self) -> str:
        return self.definition.name

    def run(self, report: Report = silent) -> CaptureRun:
        """A run of it, with an engine of its own."""
        return CaptureRun(self.definition, self.log, self.storage, self.engine(), report, self.fail)

    def journal(self) -> Found:
        """What the journal says now."""
        return read_journal(journal_topic(self.log, self.name))


def followed(name: str, log: Log, captures: Captures) -> Followed:
    """A capture of a home; NotFound if there is none of that name."""
    definition = captures.get(name)
    return Followed(
        definition,
        log,
        captures.storage(name),
        lambda: kind_of(definition.engine).open(definition, captures.engine_storage(name)),
    )
