"""One exception tree; every message says what, where, and what to do.

    PenstockError
    ├── BadInput            what the user gave cannot be used            exit code 2
    │   ├── BadName             a name outside the allow-list
    │   ├── BadTime             a time or duration that cannot be read
    │   ├── BadSchema           a schema that cannot be read, or a change of schema that is refused
    │   ├── BadRow              a row that does not fit its schema
    │   └── BadFlow             a flow that cannot run as it is written
    ├── NotFound            a topic, view, flow or offset that is not there  exit code 3
    ├── AlreadyThere        something exists that must not
    ├── LogError            the log
    │   ├── Damaged             bytes on disk that are not what was written
    │   ├── DiskFull            no space; try again once there is (Passing)
    │   ├── Unreachable         whoever keeps the log does not answer; try again (Passing)
    │   ├── Fenced              this writer or member was replaced, or its disk failed; make a new one
    │   │   └── LeaseLost           a message was lent to another consumer meanwhile
    │   ├── Full                a queue or a topic pushed back for longer than the sender waits
    │   ├── Unroutable          no queue takes this message
    │   ├── InUse               members of a group are alive; stop them first
    │   ├── SequenceGap         a producer skipped a sequence number
    │   ├── VersionConflict     a stream of events is not at the version that an append expected
    │   └── OffsetGone          retention removed what was asked for
    ├── StorageError        a file could not be written or read
    ├── EngineError         the run
    │   ├── NoJava              no Java to start Spark with
    │   ├── LostRace            another driver decided this epoch
    │   ├── Held                another driver holds this flow
    │   ├── Replaced            another driver has taken the flow over; exit code 5
    │   ├── FailedRow           a row on which a step fails, where the flow is to stop
    │   ├── Unanswered          whoever a lookup asks does not answer; the next epoch asks again (Passing)
    │   ├── Mismatch            state, sink or topic belong to another incarnation of the flow
    │   └── SparkFailed         a Spark job failed
    │       └── SparkGone           Spark's JVM has ended; it is started again (Passing)
    ├── CaptureError        following a database
    │   ├── BadMessage          what the database sent is not whole, or not in its protocol
    │   ├── NotFollowable       the database is not set up for this: wal_level, rights, publication  exit code 2
    │   ├── SlotLost            the replication slot is not there, or what it kept is gone: changes are missing
    │   ├── SlotInUse           another process reads from the replication slot
    │   └── Disconnected        the database does not answer, or ended the connection; try again (Passing)
    ├── SinkError           a sink could not take an epoch
    │   ├── SinkUnavailable     it cannot take one now; it is given again, in order (Passing)
    │   │   └── SinkLost            it lacks epochs that are no longer kept; it waits until it is filled anew
    │   ├── DamagedView         what a view's file holds is not what was written (also Damaged)
    │   └── DamagedStore        nor what the files of a store hold (also Damaged)
    ├── Passing             any of those that may pass by itself: a live run waits and tries again
    └── NotYet              a view did not come that far in the time given (also a TimeoutError)

The first line says what happened, in lower case and without a full stop; `detail` lines follow, then a hint.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class PenstockError(Exception):
    """Base of everything Penstock raises on purpose."""

    exit_code = 1

    def __init__(self, what: str, *detail: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.what, *(f"  {line}" for line in self.detail)]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        """Errors cross process borders (Spark tasks) whole."""
        return _restore, (type(self), self.what, self.detail, self.hint)


def install(*packages: str) -> str:
    """The hint where a library is missing: what works whether Penstock was installed by its name or from a clone."""
    return f"{sys.executable} -m pip install {' '.join(packages)}"


def _restore(kind: type[PenstockError], what: str, detail: tuple[str, ...], hint: str | None) -> PenstockError:
    return kind(what, *detail, hint=hint)


class BadInput(PenstockError):
    exit_code = 2


class BadName(BadInput):
    pass


class BadTime(BadInput):
    pass


class BadSchema(BadInput):
    pass


class BadRow(BadInput):
    pass


class BadFlow(BadInput):
    pass


class NotFound(PenstockError):
    exit_code = 3


class AlreadyThere(PenstockError):
    pass


class Passing(PenstockError):
    """Nothing is wrong with the flow, and nothing was decided: the same again may go well."""


class LogError(PenstockError):
    pass


class Damaged(LogError):
    pass


class DiskFull(LogError, Passing):
    pass


class Unreachable(LogError, Passing):
    pass


class Fenced(LogError):
    pass


class LeaseLost(Fenced):
    pass


class Full(LogError):
    pass


class Unroutable(LogError):
    pass


class InUse(LogError):
    pass


class SequenceGap(LogError):
    pass


class VersionConflict(LogError):
    """`expected`: a version, "new" or "exists"; `actual`: the version that the stream has; `missed`: its events since."""

    def __init__(self, stream: str, expected: int | str, actual: int, missed: "Sequence[Any]" = ()) -> None:
        wanted = {"new": "to be new", "exists": "to be there"}.get(str(expected), f"at version {expected}")
        what = f"stream {stream!r} is at version {actual}; it was expected {wanted}"
        hint = "load it again and decide anew: somebody else was first" if actual else "nothing was ever appended to it"
        super().__init__(what, hint=hint)
        self.stream, self.expected, self.actual, self.missed = stream, expected, actual, tuple(missed)

    def __reduce__(self) -> tuple[object, ...]:
        return VersionConflict, (self.stream, self.expected, self.actual, self.missed)


class OffsetGone(LogError):
    pass


class StorageError(PenstockError):
    pass


class EngineError(PenstockError):
    pass


class NoJava(EngineError):
    pass


class LostRace(EngineError):
    pass


class Held(EngineError):
    pass


class Replaced(EngineError):
    exit_code = 5


class FailedRow(EngineError):
    pass


class Unanswered(EngineError, Passing):
    pass


class Mismatch(EngineError):
    pass


class SparkFailed(EngineError):
    pass


class SparkGone(SparkFailed, Passing):
    """The JVM of the driver has ended: nothing of the epoch was decided, and a new one can be started."""


class TornEpoch(SparkFailed):
    """A task was run again after its first output had been used: the epoch is void, and worth another try."""


class CaptureError(PenstockError):
    pass


class BadMessage(CaptureError):
    pass


class NotFollowable(CaptureError):
    exit_code = 2


class SlotLost(CaptureError):
    pass


class SlotInUse(CaptureError):
    pass


class Disconnected(CaptureError, Passing):
    pass


class SinkError(PenstockError):
    pass


class SinkUnavailable(SinkError, Passing):
    pass


class SinkLost(SinkUnavailable):
    pass


class DamagedView(SinkError, Damaged):
    pass


class DamagedStore(SinkError, Damaged):
    pass


class NotYet(PenstockError, TimeoutError):
    pass
