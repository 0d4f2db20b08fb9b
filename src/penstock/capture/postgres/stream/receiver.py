"""The thread that has the socket of a replication connection: it reads while there is room, and answers the server in any case."""

import os
import select
import struct
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.capture.postgres.connecting import of, translated
from penstock.capture.postgres.decode.messages import POSTGRES_EPOCH
from penstock.capture.postgres.stream.inbox import Inbox
from penstock.errors import BadMessage, CaptureError, Disconnected, NotFollowable, PenstockError

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

DOING = "follow the database"
_LOG_DATA, _KEEPALIVE = b"wk"
_DATA, _ALIVE = struct.Struct(">QQq"), struct.Struct(">QqB")
_STATUS = struct.Struct(">cQQQqB")
_HEAD = 1 + _DATA.size


class Receiver:
    """Reads into the inbox until it is closed or something fails. `every`: seconds between two reports to the server, which ends a
    connection that is silent for its wal_sender_timeout. `silence`: seconds after which a server that says nothing is given up."""

    def __init__(self, connection: "Connection", inbox: Inbox, every: float, silence: float) -> None:
        self._connection, self._inbox = connection, inbox
        self._every, self._silence = min(every, silence / 3), silence
        self._confirmed = 0
        self._reported = (0, 0.0)  # what, and when
        self._heard = time.monotonic()
        self._closing = self._flushing = self._paused = self._asking = False
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._thread = threading.Thread(target=self._run, name="penstock-replication", daemon=True)
        self._thread.start()

    def confirm(self, lsn: int) -> None:
        """Everything before this position is durable here, and need not be sent again."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            self.wake()

    def go_on(self) -> None:
        """There is room again."""
        if self._paused:
            self.wake()

    def ask(self) -> None:
        """How far has the server come? It answers at once."""
        self._asking = True
        self.wake()

    def wake(self) -> None:
        if self._thread.is_alive():
            with suppress(BlockingIOError):  # it has many reasons to wake up already
                os.write(self._waker, b"!")

    def close(self) -> None:
        """Ends the connection. What was confirmed last is said once more, but a server that was about to send may not hear it."""
        self._closing = True
        self.wake()
        self._thread.join()
        for end in (self._woken, self._waker):
            os.close(end)

    def _run(self) -> None:
        try:
            with translated(DOING):
                self._read()
        except PenstockError as error:
            self._inbox.fail(error)
        except BaseException as error:
            self._inbox.fail(CaptureError(f"cannot {DOING}", repr(error)))
            raise
        finally:
            self._connection.close()

    def _read(self) -> None:
        while not self._closing:
            if self._inbox.room:
                self._receive()
            self._report(asked=False)
            self._wait()
        self._report(asked=True)

    def _wait(self) -> None:
        """Until there is something to read and room for it, something to report, or a reason to wake."""
        pg = self._connection.pgconn
        self._paused = True  # said before it looks, so that whoever makes room now sees it
        reading = self._inbox.room
        self._paused = not reading
        ready = self._poll((select.POLLIN if reading else 0) | (select.POLLOUT if self._flushing else 0))
        if self._flushing:
            self._flushing = pg.flush() != 0
        if not reading:
            self._heard = time.monotonic()  # nobody listened
        elif ready:
            pg.consume_input()
        elif time.monotonic() - self._heard > self._silence:
            raise Disconnected(f"the server has said nothing for {self._silence:g} seconds")

    def _poll(self, events: int) -> bool:
        """Whether something has come of these on the socket, before the next report is due."""
        poll, socket = select.poll(), self._connection.pgconn.socket
        poll.register(self._woken, select.POLLIN)
        if events:
            poll.register(socket, events)
        ready = dict(poll.poll(max(1.0, 1000 * (self._reported[1] + self._every - time.monotonic()))))
        if self._woken in ready:
            os.read(self._woken, 4096)
        return socket in ready

    def _receive(self) -> None:
        """Puts what has arrived into the inbox."""
        messages, end, wanted, get = list[bytes](), 0, False, self._connection.pgconn.get_copy_data
        length, data = get(1)
        while length > 0:
            kind = data[0]
            if kind == _LOG_DATA and length > _HEAD:
                end = max(end, _DATA.unpack_from(data, 1)[0])
                messages.append(bytes(data[_HEAD:]))
            elif kind == _KEEPALIVE and length == 1 + _ALIVE.size:
                sent, _, asked = _ALIVE.unpack_from(data, 1)
                end, wanted = max(end, sent), wanted or bool(asked)
            else:
                raise BadMessage(
                    "a message of the replication protocol cannot be read", f"{length} bytes: {bytes(data[:32]).hex(' ')}"
                )
            length, data = get(1)
        if messages or end:
            self._heard = time.monotonic()
            self._inbox.put(messages, end)
        if wanted:
            self._report(asked=True)
        if length < 0:
            raise self._ended()

    def _ended(self) -> PenstockError:
        """Why the server ended the stream."""
        import psycopg

        result = self._connection.pgconn.get_result()
        if result is None or result.status not in (psycopg.pq.ExecStatus.FATAL_ERROR, psycopg.pq.ExecStatus.BAD_RESPONSE):
            return Disconnected("the server ended the stream")
        error = psycopg.errors.error_from_result(result)
        if error.sqlstate == "42704":
            return NotFollowable("what is followed is not there any more", str(error).strip())
        return of(error, DOING)

    def _report(self, asked: bool) -> None:
        """Says what is durable, if that is new, due or asked for. What is due asks the server to answer."""
        now, confirmed = time.monotonic(), self._confirmed
        due = now - self._reported[1] >= self._every or self._asking
        if self._flushing or not (asked or due or confirmed > self._reported[0]):
            return
        self._asking = False
        clock = time.time_ns() // 1000 - POSTGRES_EPOCH
        status = _STATUS.pack(b"r", confirmed, confirmed, confirmed, clock, due)
        pg = self._connection.pgconn
        pg.put_copy_data(status)
        self._flushing = pg.flush() != 0
        self._reported = confirmed, now
