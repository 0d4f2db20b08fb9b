"""An engine followed without a log, as a capture follows it, and killed wherever one wants: what is durable then is the position
behind the last batch that was written, and the intent of one that was begun."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson

from penstock.capture.port import Batch, Engine, Json, Table
from penstock.capture.writing.gathering import by_table
from penstock.errors import Disconnected
from penstock.testing.waiting import until

KILLS = ("taken", "begun", "ended")  # behind which a kill may come
PATIENCE = 60.0


@dataclass(frozen=True)
class Change:
    """One change, as a batch has it."""

    table: Table
    op: str
    key: Any
    before: Any
    after: Any
    transaction: str
    lsn: int


@dataclass
class Followed:
    """What was written of an engine. Each start makes a new one."""

    opened: Callable[[], Engine]
    log: list[Change] = field(default_factory=list)
    position: Json | None = None
    unfinished: Json | None = None
    batches: int = 0
    ended: list[str] = field(default_factory=list)  # transactions, in their order
    _begun: Batch | None = None
    _engine: Engine | None = None

    def go_on(self, wait: float = 0.0, kill: str | None = None) -> bool:
        """The next batch, if there is one, with a kill behind one of KILLS; whether there was one."""
        engine = self.engine
        batch = engine.next(wait)
        if batch is None:
            return False
        if self._begun is not None:
            assert said(batch) == said(self._begun), "a batch that was begun came otherwise"
        if kill == "taken" and self._begun is None:
            return self.kill()
        self.unfinished, self._begun = told(batch.intent), batch
        if kill == "begun":
            return self.kill()
        self._write(batch)
        if kill == "ended":
            return self.kill()
        engine.written(told(batch.position))
        return True

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = self.opened()
            self._engine.start(self.position, self.unfinished)
        return self._engine

    def kill(self) -> bool:
        if self._engine:
            self._engine.close()
        self._engine = None
        return True

    def catch_up(self, random: Random | None = None) -> None:
        """Everything that is there now, a kill now and then."""
        self.kill()
        assert until(lambda: self._caught_up(random), PATIENCE)

    def rows(self, table: Table) -> dict[Any, Any]:
        """The changes folded: rows by their keys."""
        found: dict[Any, Any] = {}
        for change in self.log:
            if change.table == table:
                key = orjson.dumps(change.key).decode()
                found.pop(key, None)
                if change.op != "d":
                    found[key] = change.after
        return found

    def _caught_up(self, random: Random | None) -> bool:
        try:
            kill = random.choice([None, None, *KILLS]) if random else None
            return not self.go_on(0.0, kill) and self.engine.status().caught_up and self.unfinished is None
        except Disconnected:
            self.kill()
            return False

    def _write(self, batch: Batch) -> None:
        self.log += changes_in(batch)
        ids = batch.transactions.id.to_pylist()
        self.ended += [ids[i] for i in range(len(ids)) if batch.transactions.ends[i]]
        self.position, self.unfinished, self._begun = told(batch.position), None, None
        self.batches += 1


def changes_in(batch: Batch) -> list[Change]:
    """In their order; a truncate has neither key nor rows."""
    ids, lsns = batch.transactions.id.to_pylist(), batch.transactions.lsn.tolist()
    found = list[tuple[int, int, Change]]()
    for table, changes in by_table(batch.changes).items():
        columns = changes.key.to_pylist(), changes.before.to_pylist(), changes.after.to_pylist()
        for number, (key, before, after) in enumerate(zip(*columns, strict=True)):
            of = int(changes.transaction[number])
            values = _json(key), _json(before), _json(after)
            change = Change(table, chr(changes.op[number]), *values, ids[of], lsns[of])
            found.append((of, int(changes.index[number]), change))
    for truncate in batch.truncates:
        change = Change(truncate.table, "t", None, None, None, ids[truncate.transaction], lsns[truncate.transaction])
        found.append((truncate.transaction, truncate.index, change))
    return [change for _, _, change in sorted(found, key=lambda each: each[:2])]


def said(batch: Batch) -> list[Any]:
    """All that a batch says, for comparing."""
    transactions = batch.transactions
    columns = transactions.xid, transactions.lsn, transactions.time, transactions.begins, transactions.ends
    indexes = {table: changes.index.tolist() for table, changes in by_table(batch.changes).items()}
    told_of = [transactions.id.to_pylist(), *(column.tolist() for column in columns)]
    return [told(batch.intent), told(batch.position), told_of, indexes, list(batch.truncates), changes_in(batch)]


def told(value: Json) -> Json:
    """As it comes back from a journal."""
    found: Json = orjson.loads(orjson.dumps(value))
    return found


def _json(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)
