"""What a driver and its resident task say to each other: messages over a stream socket, each with its kind and length in front.

Both sides prove that they know the run's secret, which the task got from Spark, before either takes a message of the other. A
message that is longer than it may be ends the conversation.
"""

import hmac
import secrets
import socket
import struct
import threading
from contextlib import suppress
from enum import IntEnum

MOST = 256 << 20  # bytes of a message
HANDSHAKE = 2.0  # seconds for either side to prove itself
_HEADER = struct.Struct("<BQ")
_NONCE, _PROOF = 32, 32


class Kind(IntEnum):
    JOB = 1  # packed, as Spark's tasks get it
    RESULT = 2
    ERROR = 3  # one of ours: the driver raises it
    UNEXPECTED = 4  # the end of a traceback, as text
    HEARTBEAT = 5  # the job is still being worked on


class Closed(Exception):
    """The other side is gone, does not answer, or is not who it should be."""


class Channel:
    """One conversation. Several threads may send."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()

    def send(self, kind: Kind, data: bytes = b"", patience: float | None = None) -> None:
        """TimeoutError if the other side does not take it within so many seconds."""
        try:
            with self._sending:
                if patience is not None:
                    self._socket.settimeout(patience)
                self._socket.sendall(_HEADER.pack(kind, len(data)) + data)
        except TimeoutError:
            raise
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self, patience: float) -> tuple[Kind, bytes]:
        """The next message; TimeoutError if none begins, or one does not go on, within so many seconds."""
        self._socket.settimeout(patience)
        kind, length = _HEADER.unpack(_exactly(self._socket, _HEADER.size))
        if length > MOST or kind not in set(Kind):
            self.close()
            raise Closed(f"a message of kind {kind} with {length} bytes")
        return Kind(kind), _exactly(self._socket, length)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def __del__(self) -> None:
        self.close()


def driver_handshake(connection: socket.socket, secret: bytes) -> Channel:
    """The driver's side: a channel to a task that knows the secret; else Closed."""
    connection.settimeout(HANDSHAKE)
    mine = secrets.token_bytes(_NONCE)
    try:
        connection.sendall(mine)
        theirs, proof = _exactly(connection, _NONCE), _exactly(connection, _PROOF)
        if not hmac.compare_digest(proof, _proof(secret, b"task", mine, theirs)):
            raise Closed("whoever connected does not know the secret")
        connection.sendall(_proof(secret, b"driver", mine, theirs))
    except OSError as error:
        raise Closed(str(error)) from error
    return Channel(connection)


def task_handshake(connection: socket.socket, secret: bytes) -> Channel:
    """The task's side: a channel to a driver that knows the secret; else Closed."""
    connection.settimeout(HANDSHAKE)
    mine = secrets.token_bytes(_NONCE)
    try:
        theirs = _exactly(connection, _NONCE)
        connection.sendall(mine + _proof(secret, b"task", theirs, mine))
        if not hmac.compare_digest(_exactly(connection, _PROOF), _proof(secret, b"driver", theirs, mine)):
            raise Closed("who answers does not know the secret")
    except OSError as error:
        raise Closed(str(error)) from error
    return Channel(connection)


def _proof(secret: bytes, role: bytes, of_driver: bytes, of_task: bytes) -> bytes:
    return hmac.digest(secret, role + of_driver + of_task, "sha256")


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        try:
            got = connection.recv_into(view[done:])
        except TimeoutError:
            raise
        except OSError as error:
            raise Closed(str(error)) from error
        if not got:
            raise Closed("the connection has ended")
        done += got
    return bytes(data)
