"""A real OpenSearch for tests: one node on loopback, its data in a directory of the test.

    with OpenSearchServer(tmp_path) as server:
        server.ask("GET", "/_cluster/health")

It can be stopped, killed, frozen and started again with its data and under its address."""

import json
import os
import shutil
import subprocess
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.engine.spark.java import find_java
from penstock.testing.servers.jars import archive
from penstock.testing.servers.ordinary import give_away, not_as_root, place_for, while_this_lives
from penstock.testing.servers.processes import Server

VERSION = "2.19.6"
_MEMORY = "-Xms256m -Xmx256m -XX:TieredStopAtLevel=1"


class OpenSearchServer(Server):
    """The node of `place`. Started by `with`, or by `start()` and ended by `stop()`. NotToBeHad, with the reason, if it cannot be
    fetched or does not start."""

    called = "OpenSearch"
    ports_needed = 2

    def __init__(self, place: Path) -> None:
        super().__init__(place_for(self, place, "opensearch"))

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def start(self) -> None:
        zipped = archive(f"opensearch-{VERSION}", f"org.opensearch.distribution.integ-test-zip:opensearch:{VERSION}")
        self._start(lambda first: self._begin(zipped, first))

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What it says to one request: JSON. OSError if it is not there."""
        import urllib3

        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib3.PoolManager(retries=False, timeout=10) as http:
                answer = http.request(method, self.url + path, body=data, headers={"Content-Type": "application/json"})
                return json.loads(answer.data)
        except urllib3.exceptions.HTTPError as error:
            raise OSError(str(error)) from error

    def _begin(self, zipped: Path, first: bool) -> "subprocess.Popen[bytes]":
        program, data = self.place / "program", self.place / "data"
        if first:
            for left in (program, data):
                shutil.rmtree(left, ignore_errors=True)
            with zipfile.ZipFile(zipped) as files:
                files.extractall(program)
            data.mkdir(parents=True)
        (home,) = program.iterdir()
        (home / "config" / "opensearch.yml").write_text(self._settings(data))
        for script in (home / "bin").iterdir():
            script.chmod(0o755)
        if first:
            give_away(self.place)
        java = find_java().path.resolve().parents[1]
        env = {"OPENSEARCH_JAVA_HOME": str(java), "OPENSEARCH_JAVA_OPTS": _MEMORY, "PATH": os.environ["PATH"]}
        return self._launch([*not_as_root(self.called, *while_this_lives("TERM")), str(home / "bin" / "opensearch")], env)

    def _settings(self, data: Path) -> str:
        http, transport = self.ports
        settings = {"network.host": "127.0.0.1", "http.port": http, "transport.port": transport, "discovery.type": "single-node"}
        settings |= {
            "path.data": str(data),
            "path.logs": str(self.place / "logs"),
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }
        return "".join(f"{name}: {value}\n" for name, value in settings.items())

    def _answers(self) -> bool:
        with suppress(OSError, ValueError):
            return self.ask("GET", "/_cluster/health").get("status") in ("green", "yellow")
        return False
