"""What a frame's header says, from the rows and what went before them."""

from dataclasses import dataclass, replace

from penstock.core.time import NEVER
from penstock.log.port import End, Frame, Sender, TopicSpec
from penstock.log.rows import Rows, check_mark, plausible_time


@dataclass(frozen=True)
class Tail:
    """The end of a partition: what the next frame has to know."""

    next: int = 0
    appended: int = NEVER
    time: int = NEVER
    mark: int = NEVER

    def after(self, frame: Frame) -> "Tail":
        return Tail(frame.end, frame.appended, frame.time_after, frame.mark_after)

    def end(self, first: int) -> End:
        return End(first, self.next, self.appended, self.time, self.mark)


def stamped(spec: TopicSpec, tail: Tail, rows: Rows | None, mark: int, sender: Sender | None, now: int) -> Frame:
    """The header of the next frame. Append times never go back; a mark that is too far ahead is refused."""
    appended = max(now, tail.appended)
    check_mark(spec, mark, appended)
    frame = Frame(tail.next, 0, appended, NEVER, NEVER, NEVER, mark, tail.time, tail.mark, sender)
    if rows is None or not rows.batch.num_rows:
        return frame
    if rows.times is None:
        return replace(frame, count=rows.batch.num_rows, least=appended, greatest=appended, plausible=appended)
    plausible = plausible_time(spec, rows, appended)
    return replace(frame, count=rows.batch.num_rows, least=rows.least, greatest=rows.greatest, plausible=plausible)
