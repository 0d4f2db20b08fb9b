"""What a database offers to take part: transactions that outlive their connection, and are finished by their name."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.sinks.stores.port import Note, Store, Transaction
from penstock.sinks.stores.two_phase.gid import Attempt, Gid


class Preparable(Transaction, Protocol):
    """Everything in it becomes visible when it is committed under its name, or, where it was not prepared, when its block ends."""

    def make(self) -> None:
        """Makes the table and what is needed to write it, or checks what is there. Called behind `note`: nobody else does."""
        ...

    def undone(self) -> AbstractContextManager[object]:
        """What is written inside is undone if the block raises."""
        ...

    def prepare(self, gid: Gid) -> None:
        """The last call: from here on it stays, with its locks, whatever becomes of connection and server."""
        ...


class InDoubt(Protocol):
    """A database in which transactions may have been left prepared. Nothing here waits for a lock."""

    @property
    def called(self) -> str: ...

    def prepared(self) -> Sequence[Gid]:
        """Those of this sink and table, of all lives of the flow."""
        ...

    def kept(self) -> Note | None:
        """What is kept for this sink, as it is committed now."""
        ...

    def commit(self, gid: Gid) -> bool:
        """False: there is no such transaction. Then what is kept tells whether it was committed."""
        ...

    def roll_back(self, gid: Gid) -> bool:
        """False: there is no such transaction."""
        ...


class Participant(Store, InDoubt, Protocol):
    """A store that can prepare. `open` connects; tables are made by `Preparable.make`."""

    def transaction(self) -> AbstractContextManager[Preparable]: ...

    def gid(self, attempt: Attempt) -> Gid:
        """The name under which this database prepares it."""
        ...
