"""When the demo kills its engine: points in the middle of an epoch."""

from dataclasses import dataclass

_START = 7.0  # seconds, about: what a start takes
_PER_SECOND = 2  # epochs, with `--every "500 ms"`


@dataclass(frozen=True)
class Cue:
    """A point of an epoch where the engine dies, and how to tell of it: {n} is the epoch, {seen} the one that the views show."""

    point: str
    decided: bool  # before the kill
    died: str
    back: str


CUES = (
    Cue(
        "before_decide",
        False,
        "kill -9 in epoch {n}: computed, not decided; the views stay at {seen}",
        "back: epoch {n} was done again, from the same rows",
    ),
    Cue(
        "after_decide",
        True,
        "kill -9 in epoch {n}: decided, not delivered; the views are at {seen}",
        "back: epoch {n} was delivered as decided, without computing it again",
    ),
)


def kill_at(kills: int, seconds: float) -> str | None:
    """Where the engine that starts after so many kills dies: `flow/point@n`, the n-th time; None if it lives.

    Each engine gets its share of the time, less what a start takes, and a few epochs at least."""
    if kills >= len(CUES):
        return None
    share = seconds / (len(CUES) + 1) - _START
    return f"shop/{CUES[kills].point}@{max(4, round(share * _PER_SECOND))}"
