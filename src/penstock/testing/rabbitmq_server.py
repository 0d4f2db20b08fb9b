"""A real RabbitMQ for tests: one node on loopback, its data in a directory of the test.

    with RabbitServer(tmp_path) as server:
        queues = RabbitQueues(server.url)

It can be stopped, killed, frozen and started again with its data and under its address, and told that its memory is full."""

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.testing.jars import NotToBeHad

PATIENCE = 60.0
# The program itself: what Debian puts on PATH insists on its own user and its own directories.
PROGRAMS = ("/usr/lib/rabbitmq/bin",)
WATERMARK = "512MB"
_ATTEMPTS = 3
_NODE = "penstock@localhost"
_IDLE = "+S 1:1 +SDio 2 +sbwt none +sbwtdcpu none +sbwtdio none"  # one thread, which sleeps while there is nothing to do
# A message is as large as RabbitMQ 4 has it by default.
SETTINGS = """\
listeners.tcp.1 = 127.0.0.1:{port}
vm_memory_high_watermark.absolute = {watermark}
disk_free_limit.absolute = 50MB
max_message_size = 16777216
log.file.level = warning
log.console = false
"""


class RabbitServer:
    """The server of `place`. Started by `with`, or by `start()` and ended by `stop()`. NotToBeHad, with the reason, if there is
    no RabbitMQ, no client or no start."""

    def __init__(self, place: Path, memory: str = WATERMARK) -> None:
        """memory: what it may use before it stops senders."""
        self.place, self._memory = place, memory
        self.port, self._distribution, self._names = _free_ports(3)
        self.process: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None  # finds nodes by name; one of its own, so that it can be ended

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"amqp://{self.address}"

    def start(self) -> None:
        """Starts it, with the data it left behind, and waits until it answers."""
        if not find_spec("pika"):
            raise NotToBeHad("RabbitMQ's client is not installed (pip install 'penstock[rabbitmq]')")
        first = not (self.place / "data").exists()
        for _ in range(_ATTEMPTS if first else 1):
            self._start_once()
            if self._ready():
                return
            self.stop(signal.SIGKILL)
            if first:  # somebody else may have taken a port meanwhile
                self.port, self._distribution, self._names = _free_ports(3)
        raise NotToBeHad(f"RabbitMQ did not start: {self._last_words()}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, in an orderly way if nothing else is said, and waits."""
        self._end(self.process, how)
        self._end(self._epmd, signal.SIGTERM)
        self.process = self._epmd = None

    def kill(self) -> None:
        """SIGKILL, and waits."""
        self._end(self.process, signal.SIGKILL)
        self.process = None

    def freeze(self) -> None:
        """It stands still, its connections stay open."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def alarm(self, on: bool) -> None:
        """Its memory is full, as it believes: it takes no messages until that is over."""
        alarm = "{resource_limit, memory, node()}"
        change = f"set_alarm({{{alarm}, []}})" if on else f"clear_alarm({alarm})"
        self._evaluate(f"rabbit_alarm:{change}, rabbit_alarm:get_alarms()")

    def flush(self) -> None:
        """What was declared is on the disk. RabbitMQ 3.10 loses a quorum queue if it is killed within seconds after it was made."""
        self._evaluate("[dets:sync(Table) || Table <- dets:all()]")

    def _evaluate(self, expression: str) -> None:
        """In the server, as its own command line would; that takes seconds to start."""
        command = [_program("erl_call"), "-sname", _NODE, "-e"]
        done = subprocess.run(
            command,
            env=self._environment(),
            input=f"{expression}.\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode or not done.stdout.startswith("{ok,"):
            raise NotToBeHad(f"RabbitMQ did not evaluate {expression}: {done.stdout[-300:]}{done.stderr[-300:]}")

    def _running(self) -> "subprocess.Popen[bytes]":
        if self.process is None:
            raise NotToBeHad("RabbitMQ is not running")
        return self.process

    def _end(self, process: "subprocess.Popen[bytes] | None", how: signal.Signals) -> None:
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start_once(self) -> None:
        program, names = _program("rabbitmq-server"), _program("epmd")
        (self.place / "enabled_plugins").write_text("[].\n")
        (self.place / "rabbitmq.conf").write_text(SETTINGS.format(port=self.port, watermark=self._memory))
        self._epmd = self._epmd or self._launch([names, "-address", "127.0.0.1", "-port", str(self._names)])
        self.process = self._launch([program])

    def _environment(self) -> dict[str, str]:
        place = str(self.place)
        files = {
            "RABBITMQ_MNESIA_BASE": "data",
            "RABBITMQ_LOG_BASE": "log",
            "RABBITMQ_PID_FILE": "pid",
            "RABBITMQ_ENABLED_PLUGINS_FILE": "enabled_plugins",
            "RABBITMQ_CONFIG_FILE": "rabbitmq",
            "RABBITMQ_CONF_ENV_FILE": "none",
            "RABBITMQ_GENERATED_CONFIG_DIR": "config",
            "RABBITMQ_SCHEMA_DIR": "schema",
            "RABBITMQ_FEATURE_FLAGS_FILE": "flags",
        }
        return {
            **os.environ,
            **{name: f"{place}/{file}" for name, file in files.items()},
            "HOME": place,
            "RABBITMQ_NODENAME": _NODE,
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {{127,0,0,1}} {_IDLE}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._names),
            "detached": "1",  # the script becomes the server, so that its process is the one that is killed
        }

    def _launch(self, command: list[str]) -> "subprocess.Popen[bytes]":
        keeper = shutil.which("setpriv")  # where it is there, the server does not outlive a test process that was killed
        prefix = [keeper, "--pdeathsig", "TERM"] if keeper and threading.current_thread() is threading.main_thread() else []
        with (self.place / "server.log").open("ab") as log:
            return subprocess.Popen(
                [*prefix, *command], env=self._environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.place
            )

    def _ready(self) -> bool:
        """An open port is not enough: it is ready when it greets a client."""
        deadline, moment = time.monotonic() + PATIENCE, threading.Event()
        while time.monotonic() < deadline and self._running().poll() is None:
            if _greets(self.port):
                return True
            moment.wait(0.05)
        return False

    def _last_words(self) -> str:
        lines = (self.place / "server.log").read_text(errors="replace").splitlines()
        return " / ".join(lines[-3:]) or "it said nothing"


def _program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([*PROGRAMS, os.environ.get("PATH", "")]))
    if found is None:
        raise NotToBeHad(f"there is no {name} here (Debian: apt-get install rabbitmq-server)")
    return found


def _greets(port: int) -> bool:
    """Whether it answers the first words of AMQP 0-9-1 with a method of its own."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        return connection.recv(1) == b"\x01"
    return False


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
