"""What all stores that are asked have in common: where they are, a bounded pool of connections, and errors without secrets."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.errors import BadFlow, BadInput, PenstockError
from penstock.lookups.pool import Pool, Shared
from penstock.plan import Answers, Asked, Remote
from penstock.sinks.stores.places import Password


class Store(Remote):
    """A store, reached by the settings of its sink."""

    connections: int  # that a process has there at most

    @property
    @abstractmethod
    def settings(self) -> Hashable:
        """Stores with the same ones share their connections."""

    @property
    @abstractmethod
    def secret(self) -> Password | None: ...

    @abstractmethod
    def connect(self) -> Any:
        """A new connection, which any thread may use."""

    @abstractmethod
    def alive(self, connection: Any) -> None:
        """Raises if the connection is of no use any more."""


class StoreQuestions(ABC):
    """A way to a store: a part in its pool."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shared: Shared[Any] = Shared(store.settings, lambda: Pool(store.connect, store.alive, store.connections))

    @abstractmethod
    def __call__(self, keys: Asked) -> Answers:
        """Of each key what the store has."""

    def close(self) -> None:
        self._shared.close()

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection of the pool. What will not be better the next time (a client that is not installed, a secret that is not
        there) is a BadFlow; the text of everything else is told without the password."""
        try:
            with self._shared.pool.connection() as connection:
                yield connection
        except BadFlow:
            raise
        except PenstockError as error:
            raise BadFlow(f"cannot ask {self._store.called}: {error.what}", *error.detail, hint=error.hint) from error
        except Exception as error:
            secret = self._store.secret
            shown = secret.hidden(str(error)) if secret else str(error)
            if shown == str(error):
                raise
            raise ConnectionError(f"{type(error).__name__}: {shown}") from None


def connections_of(given: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise BadInput(f"connections={given!r} is out of range", hint="give a whole number from 1 up")
    return given
