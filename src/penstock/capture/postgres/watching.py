"""What is looked at while a server is followed: how far its log has come, what the slot makes it keep; and heartbeats, so that its
log moves on although nothing of ours is changed."""

import time
from collections import deque
from typing import TYPE_CHECKING

from penstock.capture.postgres.connecting import of
from penstock.capture.postgres.slots import describe_slot
from penstock.capture.postgres.wal import end_of_log, on_standby

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

PREFIX = "penstock"  # of heartbeats
_REMEMBERED = 3600  # looks


class Watch:
    """Looks at the server now and then; remembers what it saw, so that asking it for that needs no server."""

    def __init__(self, connection: "Connection", slot: str, max_kept_bytes: int) -> None:
        self._connection, self._slot, self._max_kept_bytes = connection, slot, max_kept_bytes
        self._beats = not on_standby(connection)
        self._ends: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED)  # when, and how far the log was; those not yet given out
        self.kept_bytes: int | None = None
        self.begin = self.end = end_of_log(connection)  # of the server's log, when this began and now

    def look(self) -> None:
        self.end = end_of_log(self._connection)
        self._ends.append((time.monotonic(), self.end))
        slot = describe_slot(self._connection, self._slot)
        self.kept_bytes = slot.kept_bytes if slot else None

    def lag_seconds(self, given: int) -> float:
        """How long ago the log had come to what is to be given out next. Clocks of two machines are not compared."""
        while self._ends and self._ends[0][1] <= given:
            self._ends.popleft()
        return time.monotonic() - self._ends[0][0] if self._ends else 0.0

    @property
    def warning(self) -> str | None:
        if self.kept_bytes is None or self.kept_bytes <= self._max_kept_bytes:
            return None
        kept, most = (f"{size / (1 << 20):,.0f} MiB" for size in (self.kept_bytes, self._max_kept_bytes))
        return f"the server keeps {kept} of its log for slot {self._slot}, more than {most}: its disk may fill up"

    def beat(self) -> None:
        """Writes a heartbeat, where that is allowed: without one the server's keepalives say how far it has come."""
        if not self._beats:
            return
        from psycopg import Error

        try:
            self._connection.execute("select pg_logical_emit_message(false, %s, %s)", (PREFIX, self._slot))
        except Error as error:
            if not error.sqlstate or self._connection.closed:
                raise of(error, "write a heartbeat") from error
            self._beats = False
