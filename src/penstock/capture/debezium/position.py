"""How far a capture has come with what Debezium gives."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.errors import Damaged

# What an offset says of the inside of a transaction. Without it Debezium sends the transaction again from its beginning, which can
# be told by its id; with it, it would go on somewhere inside.
_INSIDE = ("event", "row")
_OF_TRANSACTION = "transaction_"


@dataclass(frozen=True)
class DebeziumPosition:
    """What was written: the snapshot as far as it has come, then all transactions up to one, and some changes of the next."""

    offset: Mapping[str, Any] | None  # Debezium's own, with its partition, of the last whole transaction; None: in the snapshot
    snapshot: str = ""  # which one
    parts: int = 0  # of the snapshot that were written
    last: str = ""  # the id of that transaction
    open: str = ""  # the id of one that was written in part
    open_changes: int = 0  # how many of its changes were
    time: int = 0  # the greatest time of a commit, microseconds
    system: str = ""  # which server

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(position: Mapping[str, Any]) -> "DebeziumPosition":
        try:
            return DebeziumPosition(**position)
        except TypeError as error:
            raise Damaged(
                "the position of a capture cannot be read", str(error), hint="it was written by a later version"
            ) from error


def outside(offset: Mapping[str, Any]) -> dict[str, Any]:
    """The offset without what it says of the inside of a transaction."""
    at = {name: value for name, value in offset["at"].items() if name not in _INSIDE and not name.startswith(_OF_TRANSACTION)}
    return {**offset, "at": at}
