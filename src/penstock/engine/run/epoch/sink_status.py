"""How far the sinks of a flow have come, for whoever looks from outside: never synced, never needed."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson

from penstock.core.time import Clock, text
from penstock.errors import NotFound, PenstockError
from penstock.storage.port import Storage

_DIRECTORY = "sinks"
_LARGEST = 1 << 18  # bytes, then a file begins anew

Tell = Callable[[str, int, int, BaseException | None], None]  # sink, the last epoch it has, epochs it is owed, what keeps it away


def tell_nobody(sink: str, delivered: int, owed: int, away: BaseException | None) -> None:
    """Nobody looks."""


def telling(storage: Storage, clock: Clock) -> Tell:
    """Appends a line to the file of the sink."""

    def tell(sink: str, delivered: int, owed: int, away: BaseException | None) -> None:
        line = {"clock": text(clock.now()), "delivered": delivered, "owed": owed, **_words(away)}
        with suppress(PenstockError):  # a disk that is full is told elsewhere
            path = f"{_DIRECTORY}/{sink}.jsonl"
            appender = storage.append(path)
            try:
                if appender.size > _LARGEST:
                    appender.truncate(0)
                appender.write(b"\n" + orjson.dumps(line))
            finally:
                appender.close()

    return tell


def _words(away: BaseException | None) -> dict[str, str | None]:
    if isinstance(away, PenstockError):
        return {"away": away.what, "hint": away.hint}
    return {"away": str(away) if away else None, "hint": None}


def last_told(storage: Storage, sink: str) -> dict[str, Any]:
    """The last line; empty if there is none."""
    try:
        lines = storage.read(f"{_DIRECTORY}/{sink}.jsonl").to_pybytes().splitlines()
    except NotFound:
        return {}
    for line in reversed(lines):
        with suppress(orjson.JSONDecodeError):
            found: dict[str, Any] = orjson.loads(line)
            return found
    return {}
