"""Several views of one flow, read at one epoch: what they show fits together."""

import contextlib
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

import pyarrow as pa

from penstock.core.time import duration
from penstock.errors import BadInput, NotYet
from penstock.views.view import Progress, View

_POLL = 0.02


class Together(NamedTuple):
    """The rows of each view, by its name, as all of them were when this epoch was done."""

    epoch: int
    rows: dict[str, pa.Table]


def read_together(views: Iterable[View], timeout: str | timedelta = "10 seconds") -> Together:
    """All rows of several views of one flow as they were at one epoch, the last that all of them have:
    `epoch, rows = read_together([orders, stock])`, then `rows["orders"]`.

    A view that is ahead is read as it was known then, and none is waited for. Only while one has no epoch at all, or is of another
    life of the flow than the others, there is nothing to read: NotYet when the time is over."""
    asked = list(views)
    _check(asked)
    deadline = time.monotonic() + duration(timeout, "timeout").total_seconds()
    while True:
        with contextlib.ExitStack() as snapshots:
            for view in asked:
                snapshots.enter_context(view.snapshot())
            places = [view.progress for view in asked]
            if _fit(places):
                epoch = min(place.epoch for place in places)
                return Together(epoch, {view.name: _rows(view, place, epoch) for view, place in zip(asked, places, strict=True)})
        if time.monotonic() >= deadline:
            raise _not_yet(asked, places, timeout)
        time.sleep(_POLL)


def _check(views: Sequence[View]) -> None:
    if not views or not all(isinstance(view, View) for view in views):
        raise BadInput("there is nothing to read together", hint="give opened views: read_together([View(…), View(…)])")
    names = [view.name for view in views]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"view {twice!r} is named twice")
    flows = dict.fromkeys(view.meta.flow for view in views)
    if len(flows) > 1:
        raise BadInput(
            f"cannot read {', '.join(names)} together: they are views of several flows ({', '.join(flows)})",
            hint="each flow has epochs of its own; write the views in one flow",
        )


def _fit(places: Sequence[Progress]) -> bool:
    """They are of one life of the flow, and each of them has an epoch, or none has."""
    return len({place.incarnation for place in places}) == 1 and len({place.epoch < 0 for place in places}) == 1


def _rows(view: View, place: Progress, epoch: int) -> pa.Table:
    return view.rows() if place.epoch == epoch else view.rows(known_at=epoch)


def _not_yet(views: Sequence[View], places: Sequence[Progress], timeout: str | timedelta) -> NotYet:
    empty = [view.name for view, place in zip(views, places, strict=True) if place.epoch < 0]
    why = f"no epoch has come to {', '.join(empty)} yet" if empty else "the flow was reset, and some are of its earlier life"
    return NotYet(
        f"views {', '.join(view.name for view in views)} cannot be read together after {timeout}: {why}",
        hint=f"is flow {views[0].meta.flow!r} running? a view that was opened before a reset has to be opened anew",
    )
