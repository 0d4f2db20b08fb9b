"""Connections that do not wait for ever: a server that is silent in the middle of a statement is asked, over another connection,
whether it is there at all. One that is busy answers, and is waited for; one that hangs, or whose network has gone, is given up."""

import time
from collections.abc import Callable, Generator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import psycopg
    from psycopg.abc import PQGen

    Connection = psycopg.Connection[tuple[Any, ...]]

RV = TypeVar("RV")
SILENCE = 20.0  # seconds
CONNECT_SECONDS = 10  # libpq takes at least 2
# Where the other machine is gone, or the network, nobody says so: the kernel finds out, within half a minute.
NETWORK = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4, "tcp_user_timeout": 30_000}


def opened(url: str, given: dict[str, Any], mine: dict[str, Any]) -> "Connection":
    """A connection that commits each statement; OperationalError where its server neither goes on nor answers. given: what the URL
    says, which counts more than what is usual; mine: what counts more than that."""
    usual: dict[str, Any] = {
        name: value for name, value in {"connect_timeout": CONNECT_SECONDS, **NETWORK}.items() if name not in given
    }
    made = _answering().connect(url, autocommit=True, **usual, **mine)
    again = {name: value for name, value in mine.items() if name not in ("replication", "cursor_factory")}
    made.answers = lambda: _answers(url, {**usual, **again})
    connection: Connection = made
    return connection


@cache
def _answering() -> Any:
    """The class, made where the client library is needed first."""
    import psycopg

    class Answering(psycopg.Connection[tuple[Any, ...]]):
        answers: Callable[[], bool]

        def wait(self, gen: "PQGen[RV]", *how: Any, **named: Any) -> RV:
            try:
                state = next(gen)
            except StopIteration as end:  # what was asked for had come already, as most rows of a copy have
                found: RV = end.value
                return found
            return super().wait(_listening(gen, state, self.check), *how, **named)

        def check(self) -> None:
            if not self.answers():
                self.pgconn.finish()
                what = f"the server has said nothing for {SILENCE:g} seconds, and answers no other connection"
                raise psycopg.OperationalError(what)

    return Answering


def _listening(gen: "PQGen[RV]", state: Any, check: Callable[[], None]) -> Generator[Any, Any, RV]:
    """The same steps of a statement, with a look at the server whenever nothing has come for long."""
    heard = time.monotonic()
    while True:
        ready = yield state
        if ready:
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENCE:
            check()
            heard = time.monotonic()
        try:
            state = gen.send(ready)
        except StopIteration as end:
            found: RV = end.value
            return found


def _answers(url: str, settings: dict[str, Any]) -> bool:
    """Whatever it answers, also that it has no room, it is there."""
    import psycopg

    try:
        psycopg.connect(url, **settings).close()
    except psycopg.errors.ConnectionTimeout:
        return False
    except psycopg.OperationalError:
        return True
    return True
