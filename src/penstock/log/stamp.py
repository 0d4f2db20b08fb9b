"""What a frame's header says, from the rows and what went before them."""

from dataclasses import dataclass

import pyarrow as pa

from penstock.core.time import FOREVER, NEVER, duration_text, micros, text
from penstock.errors import BadInput, BadTime
from penstock.log.intake.checked import CheckedRows
from penstock.log.port import End, Frame, Sender, TopicSpec


@dataclass(frozen=True)
class Tail:
    """The end of a partition: what the next frame has to know."""

    next: int = 0
    appended: int = NEVER
    time: int = NEVER
    mark: int = NEVER
    greatest: int = NEVER  # greatest event time, plausible or not; FOREVER where it is not known

    def after(self, frame: Frame) -> "Tail":
        greatest = max(self.greatest, frame.greatest)
        return Tail(frame.end, frame.appended, frame.time_after, frame.mark_after, greatest)

    def end(self, first: int) -> End:
        return End(first, self.next, self.appended, self.time, self.mark)


def stamped(spec: TopicSpec, tail: Tail, rows: CheckedRows | None, mark: int, sender: Sender | None, now: int) -> Frame:
    """The header of the next frame. Append times never go back; a mark that is too far ahead is refused."""
    appended = max(now, tail.appended)
    check_mark(spec, mark, appended)
    count, least, greatest, plausible = 0, NEVER, NEVER, NEVER
    if rows is not None and rows.batch.num_rows:
        count = rows.batch.num_rows
        least, greatest, plausible = appended, appended, appended
        if rows.times is not None:
            least, greatest, plausible = rows.least, rows.greatest, _plausible_time(spec, rows, appended)
        if rows.untimed:
            least, greatest, plausible = min(least, appended), max(greatest, appended), max(plausible, appended)
    return Frame(tail.next, count, appended, least, greatest, plausible, mark, tail.time, tail.mark, sender)


def _plausible_time(spec: TopicSpec, rows: CheckedRows, appended: int) -> int:
    """The greatest event time of its own that is not more than `future` beyond the append time."""
    limit = appended + micros(spec.future)
    if spec.writer or rows.times is None or rows.greatest <= limit:
        return rows.greatest
    below = rows.times[rows.times <= limit]
    return int(below.max()) if len(below) else NEVER


def check_mark(spec: TopicSpec, mark: int, appended: int) -> None:
    """Refuses a mark that says more than its producer can know."""
    if not NEVER <= mark <= FOREVER:
        raise BadTime(f"{mark} is not a valid time for a mark")
    if mark == FOREVER or spec.writer or mark <= appended + micros(spec.future):
        return
    raise BadTime(
        f"the mark {text(mark)} lies more than {duration_text(spec.future)} beyond the present",
        f"topic {spec.name}, now {text(appended)}",
        hint="marks promise that no earlier row will come; the end of input is `end`",
    )


def refuse_events(spec: TopicSpec, rows: pa.RecordBatch | CheckedRows | None) -> None:
    """Rows of an event store have versions, which only its judge knows."""
    if spec.events and rows is not None:
        raise BadInput(
            f"topic {spec.name} is an event store: its events are appended with their versions",
            hint=f'EventStore.open("{spec.name}")',
        )


def check_something(rows: pa.RecordBatch | CheckedRows | None, mark: int) -> None:
    if rows is None and mark == NEVER:
        raise BadInput("there is nothing to append: neither rows nor a mark")
