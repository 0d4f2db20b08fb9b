"""A real RabbitMQ for tests: one node on loopback, its data in a directory of the test.

    with RabbitServer(tmp_path) as server:
        queues = RabbitQueues(server.url)

It can be stopped, killed, frozen and started again with its data and under its address, and told that its memory is full."""

import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from penstock.testing.servers.jars import NotToBeHad
from penstock.testing.servers.processes import PATIENCE, Server, end

# The program itself: what Debian puts on PATH insists on its own user and its own directories.
PROGRAMS = ("/usr/lib/rabbitmq/bin",)
WATERMARK = "512MB"
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


class RabbitServer(Server):
    """The server of `place`. Started by `with`, or by `start()` and ended by `stop()`. NotToBeHad, with the reason, if there is
    no RabbitMQ, no client or no start."""

    called = "RabbitMQ"
    ports_needed = 3

    def __init__(self, place: Path, memory: str = WATERMARK) -> None:
        """memory: what it may use before it stops senders."""
        super().__init__(place)
        self._memory = memory
        self._epmd: subprocess.Popen[bytes] | None = None  # finds nodes by name; one of its own, so that it can be ended

    @property
    def url(self) -> str:
        return f"amqp://{self.address}"

    def start(self) -> None:
        if not find_spec("pika"):
            raise NotToBeHad("RabbitMQ's client is not installed (pip install pika)")
        self._start(self._begin)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        super().stop(how)
        end(self._epmd, signal.SIGTERM)
        self._epmd = None

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

    def _begin(self, first: bool) -> "subprocess.Popen[bytes]":
        program, names = _program("rabbitmq-server"), _program("epmd")
        (self.place / "enabled_plugins").write_text("[].\n")
        (self.place / "rabbitmq.conf").write_text(SETTINGS.format(port=self.port, watermark=self._memory))
        command = [names, "-address", "127.0.0.1", "-port", str(self.ports[2])]
        self._epmd = self._epmd or self._launch(command, self._environment())
        return self._launch([program], self._environment())

    def _answers(self) -> bool:
        """It greets a client: it answers the first words of AMQP 0-9-1 with a method of its own."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            return connection.recv(1) == b"\x01"
        return False

    def _environment(self) -> dict[str, str]:
        place, (_, distribution, names) = str(self.place), self.ports
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
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {{127,0,0,1}} {_IDLE}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
            "detached": "1",  # the script becomes the server, so that its process is the one that is killed
        }


def _program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([*PROGRAMS, os.environ.get("PATH", "")]))
    if found is None:
        raise NotToBeHad(f"there is no {name} here (Debian: apt-get install rabbitmq-server)")
    return found
