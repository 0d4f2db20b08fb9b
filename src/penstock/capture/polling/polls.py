"""Polls on disk: what differed, in parts, and the copies that the next poll is compared with. A poll counts once its last file,
which names the others, is published; what was written of one before that is thrown away."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from penstock.capture.naming import escaped
from penstock.capture.polling.copy import TableCopy
from penstock.capture.port import Bytes, Changes, Table, TableFacts
from penstock.core.arrow import numbers_in, one_array
from penstock.errors import Damaged, NotFound
from penstock.storage.port import Storage

_POLLS, _SPILL = "polls", "reading"
_LAST = "poll"


@dataclass(frozen=True)
class Part:
    """Some of the changes that a poll has found."""

    table: Table
    rows: int
    first: int  # how many changes of the poll stand before it


@dataclass(frozen=True)
class Poll:
    """A poll that counts."""

    number: int
    begun: int  # microseconds since 1970
    parts: tuple[Part, ...]
    facts: Mapping[Table, TableFacts]

    def json(self) -> dict[str, Any]:
        facts = [[*table, of.schema, list(of.key)] for table, of in self.facts.items()]
        return {"number": self.number, "begun": self.begun, "parts": [asdict(part) for part in self.parts], "facts": facts}

    @staticmethod
    def of(told: Mapping[str, Any]) -> "Poll":
        parts = tuple(Part((part["table"][0], part["table"][1]), part["rows"], part["first"]) for part in told["parts"])
        facts = {(schema, table): TableFacts(of, tuple(key)) for schema, table, of, key in told["facts"]}
        return Poll(told["number"], told["begun"], parts, facts)


class Polls:
    """The last one, and the one that is being made."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def last(self) -> Poll | None:
        """None if there is none that counts; what does not count is removed."""
        self.storage.remove(_SPILL, durable=False)
        found = None
        for name in sorted(self.storage.list(_POLLS), reverse=True):
            there = self.storage.list(f"{_POLLS}/{name}")
            if found is None and _LAST in there:
                found = self._read(f"{_POLLS}/{name}/{_LAST}")
            else:
                self.storage.remove(f"{_POLLS}/{name}")
        return found

    def forget_all(self) -> None:
        """From here on there was never one."""
        self.storage.remove(_POLLS)

    def publish(self, poll: Poll) -> None:
        """From here on it counts, and no other does."""
        self.storage.publish(f"{_place(poll.number)}/{_LAST}", orjson.dumps(poll.json()))
        self.storage.remove(_place(poll.number - 1), durable=False)

    def copy_of(self, poll: Poll | None, table: Table) -> TableCopy:
        """What a table looked like at a poll."""
        return TableCopy(self.storage, self.copy_path(poll.number, table) if poll and table in poll.facts else None)

    def copy_path(self, poll: int, table: Table) -> str:
        return f"{_place(poll)}/copy-{_named(table)}"

    def spill_path(self, table: Table) -> str:
        return f"{_SPILL}/{_named(table)}"

    def put(self, poll: int, number: int, ops: Bytes, keys: pa.Array, after: pa.Array) -> None:
        """Makes a part durable."""
        rows = pa.record_batch([pa.array(ops, pa.uint8()), keys, after], ["op", "key", "after"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_batch(rows)
        self.storage.publish(_part(poll, number), sink.getvalue().to_pybytes())

    def take(self, poll: Poll, number: int) -> Changes:
        """A part as changes of the first transaction; Damaged if it is not there any more."""
        part = poll.parts[number]
        try:
            rows = pa.ipc.open_stream(self.storage.read(_part(poll.number, number))).read_all()
        except (NotFound, pa.ArrowInvalid) as error:
            raise Damaged(
                f"changes of table {'.'.join(part.table)} that a poll has found are gone",
                _part(poll.number, number),
                hint="restore the capture's directory, or begin with another name",
            ) from error
        op, keys, after = (one_array(rows[name]) for name in ("op", "key", "after"))
        ops = numbers_in(op.buffers()[1], np.uint8, len(op), op.offset)
        before = keys.take(pa.array(np.arange(len(ops)), pa.int64(), mask=ops != ord("d")))
        index = np.arange(part.first, part.first + len(ops), dtype=np.int64)
        return Changes(part.table, ops, keys, before, after, np.zeros(len(ops), np.int64), index)

    def written(self, poll: int, parts: int) -> None:
        """So many parts of a poll need not be kept."""
        names = self.storage.list(f"{_place(poll)}/parts")
        for name in names:
            if int(name) < parts:
                self.storage.remove(f"{_place(poll)}/parts/{name}", durable=False)

    def _read(self, path: str) -> Poll:
        try:
            return Poll.of(orjson.loads(self.storage.read(path).to_pybytes()))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise Damaged("a poll cannot be read", path, str(error)) from error


def _place(poll: int) -> str:
    return f"{_POLLS}/{poll:012d}"


def _part(poll: int, number: int) -> str:
    return f"{_place(poll)}/parts/{number:08d}"


def _named(table: Table) -> str:
    return "-".join(f"{len(part)}{escaped(part)}" for part in table)
