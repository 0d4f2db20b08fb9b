"""What a frame's header says, from the rows and what went before them."""

from dataclasses import dataclass

from penstock.core.time import NEVER
from penstock.log.intake.stored_rows import Rows, check_mark, plausible_time
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


def stamped(spec: TopicSpec, tail: Tail, rows: Rows | None, mark: int, sender: Sender | None, now: int) -> Frame:
    """The header of the next frame. Append times never go back; a mark that is too far ahead is refused."""
    appended = max(now, tail.appended)
    check_mark(spec, mark, appended)
    count, least, greatest, plausible = 0, NEVER, NEVER, NEVER
    if rows is not None and rows.batch.num_rows:
        count = rows.batch.num_rows
        least, greatest, plausible = appended, appended, appended
        if rows.times is not None:
            least, greatest, plausible = rows.least, rows.greatest, plausible_time(spec, rows, appended)
        if rows.untimed:
            least, greatest, plausible = min(least, appended), max(greatest, appended), max(plausible, appended)
    return Frame(tail.next, count, appended, least, greatest, plausible, mark, tail.time, tail.mark, sender)
