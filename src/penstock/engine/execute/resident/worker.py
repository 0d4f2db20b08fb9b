"""The side of a resident task that Spark runs: it takes jobs from the driver, one after the other, until there are none."""

import pickle
import socket
import ssl
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.engine.execute.job import Job
from penstock.engine.execute.placement import InProcess
from penstock.engine.execute.resident.channel import Channel, Closed, Kind, task_handshake
from penstock.errors import PenstockError

IDLE, IDLE_ON_CLUSTER = 600.0, 60.0  # seconds without a job, after which the task ends and Spark has its slot back
HEARTBEAT = 1.0  # seconds between two of them while a job is worked on
LIFE = 10_000  # jobs after which a fresh process takes over
LOOK = 500  # jobs between two looks at the memory
MOST_MEMORY = 2 << 30  # bytes of its own that a process may hold where somebody looks


@dataclass(frozen=True)
class Endpoint:
    """Where a task finds its driver."""

    address: str | tuple[str, int]  # of a Unix socket, or a host and a port
    secret: bytes
    certificate: str | None = None  # PEM, of the driver's end; None: the connection is not encrypted
    idle: float = IDLE

    def connect(self) -> socket.socket:
        if isinstance(self.address, str):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.address)
            return connection
        connection = socket.create_connection(self.address, timeout=10.0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.certificate is None:
            return connection
        known = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        known.check_hostname = False  # it is this one certificate that is trusted, whatever the address
        known.load_verify_locations(cadata=self.certificate)
        return known.wrap_socket(connection)


class WornOut(Exception):
    """This process has done its share: Spark starts another one for the next try of the task."""


def stay(endpoint: Endpoint, rows: Iterable[Any]) -> list[Any]:
    """The body of the Spark task."""
    from penstock.engine.execute.spark_tasks import settle

    settle()
    list(rows)  # input left unread would cost the worker process
    try:
        channel = task_handshake(endpoint.connect(), endpoint.secret)
    except (OSError, Closed):
        return []  # the driver has given this task up
    try:
        serve(channel, endpoint.idle)
    finally:
        channel.close()
    return []


def serve(channel: Channel, idle: float) -> None:
    """Runs jobs until the driver is gone or has had none for a while. WornOut after many."""
    with Heartbeats(channel) as heartbeats:
        for served in range(1, LIFE + 1):
            try:
                _, data = channel.receive(idle)
            except (TimeoutError, Closed):
                return
            with heartbeats.sent():
                kind, answer, broken = _answer(data)
            with suppress(Closed, TimeoutError):  # then the driver is gone, and the next receive says so
                channel.send(kind, answer)
            if broken or (not served % LOOK and own_memory() > MOST_MEMORY):
                raise WornOut(f"after {served} jobs, with {own_memory() >> 20} MiB")
    raise WornOut(f"after {LIFE} jobs")


def _answer(data: bytes) -> tuple[Kind, bytes, bool]:
    """What to answer; and whether this process had better end."""
    try:
        job = pickle.loads(data)  # noqa: S301  of our own driver, which has proved that it knows the secret
        assert isinstance(job, Job)
        return Kind.RESULT, pickle.dumps(InProcess().run(job)), False
    except PenstockError as error:
        return Kind.ERROR, pickle.dumps(error), False
    except Exception as error:
        return Kind.UNEXPECTED, traceback.format_exc()[-2000:].encode(), isinstance(error, MemoryError)


class Heartbeats:
    """Sent while a job is worked on, from a thread of their own: a process that was stopped gives none."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._busy, self._idle = channel, threading.Event(), threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._send, name="heartbeats", daemon=True)

    def __enter__(self) -> "Heartbeats":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._idle.set()
        self._busy.set()
        self._thread.join()

    @contextmanager
    def sent(self) -> Iterator[None]:
        self._idle.clear()
        self._busy.set()
        try:
            yield
        finally:
            self._busy.clear()
            self._idle.set()

    def _send(self) -> None:
        with suppress(Closed, TimeoutError):
            while not self._ended:
                self._busy.wait()
                if not self._idle.wait(HEARTBEAT):
                    self._channel.send(Kind.HEARTBEAT)


def own_memory() -> int:
    """Bytes that this process holds of its own, files that are mapped left out; 0 where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    found = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(found[0].split()[1]) << 10 if found else 0
