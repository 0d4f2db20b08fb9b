"""Debezium's engine as an engine of the port.

It runs in a process of its own and is started, each time, at the offset that our log says; the offsets that it keeps itself do not
count. What it sends is put together into whole transactions, and each batch lies on disk before it is given out."""

import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.capture.debezium.assembly import BOUND, Assembly
from penstock.capture.debezium.connectors import (
    TARGETS,
    Address,
    connector_of,
    first_frame,
    properties,
    question,
    reached,
    target_of,
)
from penstock.capture.debezium.position import DebeziumPosition
from penstock.capture.debezium.process import Child
from penstock.capture.debezium.spool import Spool
from penstock.capture.definition import CaptureDefinition
from penstock.capture.port import Batch, Json, SnapshotProgress, Status
from penstock.errors import Damaged, NotFound
from penstock.storage.port import Storage

PART = 2_500  # rows of a snapshot that are given out together


class DebeziumEngine:
    """Follows the tables of a capture. storage: a place of its own."""

    def __init__(self, definition: CaptureDefinition, storage: Storage, bound: int = BOUND) -> None:
        self._definition, self._bound = definition, bound
        self._connector, self._spool = connector_of(definition), Spool(storage)
        self._child: Child | None = None
        self._again: Batch | None = None
        self._target: dict[str, Any] | None = None
        self._parts = range(0)  # of the snapshot that are still to be given out
        self._marked = self._given = 0  # batches of the process: up to which one they are durable, and were given out
        self._copied = self._number = 0  # rows and parts of the snapshot
        self._forgotten = ""  # the snapshot whose parts are removed
        self._caught_up = False
        self._assembly: Assembly

    @property
    def connector(self) -> str:
        return self._connector.name

    @property
    def database(self) -> str:
        return Address.of(self._definition).database

    def start(self, position: Json | None, unfinished: Json | None) -> None:
        self.close()
        self._again = self._spool.take(unfinished) if unfinished else None
        told = self._again.position if self._again else position
        at = DebeziumPosition.of(told) if told else None
        self._marked = self._given = 0
        self._caught_up = False
        self._begin() if at is None else self._go_on(at)

    def next(self, wait: float) -> Batch | None:
        assert self._child, "the engine has not been started"
        if self._again:
            again, self._again = self._again, None
            return again
        deadline = time.monotonic() + wait
        while True:
            batch = self._ready()
            if batch:
                return batch
            if self._child.waiting:
                self._child.go_on(self._marked)
            said = self._child.read(max(0.0, deadline - time.monotonic()))
            if said is None:
                return None
            self._take(said)

    def written(self, position: Json) -> None:
        at = DebeziumPosition.of(position)
        self._spool.clear()
        if at.offset is not None and at.snapshot != self._forgotten:
            self._spool.forget(at.snapshot)
            self._forgotten = at.snapshot
        self._marked = self._given
        if self._child and self._child.waiting and not self._parts:
            self._child.go_on(self._marked)

    def status(self) -> Status:
        rows = self._copied
        at_work = self._child is not None and self._assembly.position.offset is None
        progress = [SnapshotProgress(table, rows, rows) for table in self._definition.tables] if at_work else []
        return Status(snapshots=progress[:1], caught_up=self._caught_up and not self._parts and self._again is None)

    def close(self) -> None:
        if self._child:
            self._child.close()
            self._directory.cleanup()
        self._child = None

    def _begin(self) -> None:
        """From the beginning, with a snapshot that is given out once it is complete: after a kill Debezium would begin it anew, and
        rows that were deleted meanwhile would stay."""
        self._spool.reset()
        system = ""
        if self.connector == "postgresql":
            from penstock.capture.debezium.source import PostgresSource

            self._target, system = PostgresSource(self._definition).begin()
        self._copied, self._parts, self._number = 0, range(0), 0
        self._follow(DebeziumPosition(None, snapshot=uuid.uuid4().hex, system=system), None)

    def _go_on(self, at: DebeziumPosition) -> None:
        offset, self._parts = at.offset, range(0)
        if offset is None:
            parts, offset = self._completed(at.snapshot)
            self._parts = range(at.parts, parts)
            at = replace(at, offset=None if self._parts else offset)
        offset = self._spool.idled(at.last) or offset
        if self.connector == "postgresql":
            from penstock.capture.debezium.source import PostgresSource

            self._target, _ = PostgresSource(self._definition).go_on(offset, at.system)
        self._follow(at, offset)

    def _completed(self, snapshot: str) -> tuple[int, Any]:
        try:
            return self._spool.completed(snapshot)
        except NotFound as error:
            raise Damaged(
                "the snapshot of a capture that was being written is gone",
                hint="restore the capture's directory, or begin with another name",
            ) from error

    def _follow(self, at: DebeziumPosition, offset: Json | None) -> None:
        self._assembly = Assembly(at, self._definition.name, self._connector.binlog, self._bound)
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-debezium-", ignore_cleanup_errors=True)
        told = first_frame(self._definition) | {"offset": offset, "history": self._spool.history()}
        told |= {"properties": properties(self._definition, Path(self._directory.name)), "directory": self._directory.name}
        if self.connector in TARGETS:
            told["ask"] = question(self._definition, TARGETS[self.connector])
        self._child = Child(told)

    def _take(self, said: dict[str, Any]) -> None:
        if said["kind"] == "answers":
            self._target = target_of(said["answers"])
            return
        if said["history"]:
            self._spool.remember(said["history"])
        assembly = self._assembly
        assembly.add(said)
        if assembly.position.offset is None and not self._parts:
            self._copy(said["offset"] is not None)
        if said["quiet"] or (assembly.offset and self._target and reached(assembly.offset, self._target)):
            self._caught_up = True

    def _copy(self, complete: bool) -> None:
        """Puts away rows of a snapshot; once it is complete they are given out."""
        assembly, position = self._assembly, self._assembly.position
        while count := assembly.part(PART, complete):
            self._copied += count
            assembly.position = replace(position, parts=self._number + 1)
            name = f"snapshot:{position.snapshot[:8]}:{self._number}"
            self._spool.put_part(position.snapshot, self._number, assembly.take_snapshot(name, count))
            self._number += 1
        if complete:
            assert assembly.offset is not None
            self._spool.complete(position.snapshot, self._number, assembly.offset)
            self._parts = range(self._number)
            if not self._parts:
                assembly.position = replace(assembly.position, offset=assembly.offset)

    def _ready(self) -> Batch | None:
        """What can be given out now."""
        if self._parts:
            return self._part()
        batch = self._assembly.take()
        if batch:
            self._given = self._assembly.number
            return replace(batch, intent=self._spool.put(batch))
        self._idle()
        return None

    def _part(self) -> Batch:
        assembly, number = self._assembly, self._parts[0]
        batch = self._spool.take(self._spool.part(assembly.position.snapshot, number))
        self._parts = self._parts[1:]
        position = DebeziumPosition.of(batch.position)
        if not self._parts:
            position = replace(position, offset=self._spool.completed(position.snapshot)[1])
        assembly.position = position
        return replace(batch, position=assembly.position.json())

    def _idle(self) -> None:
        """Nothing of ours was changed: the database need not keep its log for us."""
        if self._marked < self._given or self._assembly.position.offset is None:
            return
        offset = self._assembly.idle()
        if offset is not None:
            self._spool.idle(self._assembly.position.last, offset)
            self._marked = self._given = self._assembly.number
