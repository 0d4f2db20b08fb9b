"""Connections that do not wait for ever: a server that is silent in the middle of a statement is asked, over another connection,
whether it is there at all. One that is busy answers, and is waited for; one that hangs, or whose network has gone, is given up."""

import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from psycopg import Connection, OperationalError, errors
from psycopg.abc import PQGen

RV = TypeVar("RV")
SILENCE = 20.0  # seconds
CONNECT_SECONDS = 10  # libpq takes at least 2
# Where the other machine is gone, or the network, nobody says so: the kernel finds out, within half a minute.
NETWORK = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4, "tcp_user_timeout": 30_000}


class AnsweringConnection(Connection[tuple[Any, ...]]):
    """Raises OperationalError where a server neither goes on nor answers."""

    answers: Callable[[], bool]  # asks it

    def wait(self, gen: PQGen[RV], *how: Any, **named: Any) -> RV:
        try:
            state = next(gen)
        except StopIteration as end:  # what was asked for had come already, as most rows of a copy have
            found: RV = end.value
            return found
        return super().wait(self._listening(gen, state), *how, **named)

    def _listening(self, gen: PQGen[RV], state: Any) -> Generator[Any, Any, RV]:
        heard = time.monotonic()
        while True:
            ready = yield state
            if ready:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE:
                self._check()
                heard = time.monotonic()
            try:
                state = gen.send(ready)
            except StopIteration as end:
                found: RV = end.value
                return found

    def _check(self) -> None:
        if not self.answers():
            self.pgconn.finish()
            raise OperationalError(f"the server has said nothing for {SILENCE:g} seconds, and answers no other connection")


def opened(url: str, given: dict[str, Any], mine: dict[str, Any]) -> AnsweringConnection:
    """A connection that commits each statement. given: what the URL says, which counts more than what is usual; mine: what counts
    more than that."""
    usual: dict[str, Any] = {
        name: value for name, value in {"connect_timeout": CONNECT_SECONDS, **NETWORK}.items() if name not in given
    }
    made = AnsweringConnection.connect(url, autocommit=True, **usual, **mine)
    again = {name: value for name, value in mine.items() if name not in ("replication", "cursor_factory")}
    made.answers = lambda: _answers(url, {**usual, **again})
    return made


def _answers(url: str, settings: dict[str, Any]) -> bool:
    """Whatever it answers, also that it has no room, it is there."""
    try:
        Connection.connect(url, **settings).close()
    except errors.ConnectionTimeout:
        return False
    except OperationalError:
        return True
    return True
