"""Why a handler failed, short enough for the header of a dead letter."""

import traceback

LINES = 6  # of the traceback, the last ones
LONGEST = 1_000  # characters


def reason_of(error: BaseException) -> str:
    """The exception's text, and the last lines of where it came from."""
    first = traceback.format_exception_only(error)[-1].strip()
    frames = "".join(traceback.format_tb(error.__traceback__)).rstrip().splitlines()[-LINES:]
    return "\n".join([first[: LONGEST // 2], *frames])[:LONGEST]
