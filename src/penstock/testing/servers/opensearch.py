"""A real OpenSearch for tests: one node on loopback, its data in a directory of the test. And an Elasticsearch, from which it came.

    with OpenSearchServer(tmp_path) as server:
        server.ask("GET", "/_cluster/health")

It can be stopped, killed, frozen and started again with its data and under its address."""

import json
import os
import shutil
import subprocess
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from penstock.engine.spark.java import find_java
from penstock.testing.servers.jars import NotToBeHad, archive
from penstock.testing.servers.ordinary import give_away, not_as_root, place_for, while_this_lives
from penstock.testing.servers.processes import Server

VERSION = "2.19.6"
ELASTICSEARCH = {"8.19.21": 17, "9.5.3": 21}  # versions, and the Java that each needs
_MEMORY = "-Xms256m -Xmx256m -XX:TieredStopAtLevel=1"


class OpenSearchServer(Server):
    """The node of `place`. Started by `with`, or by `start()` and ended by `stop()`. NotToBeHad, with the reason, if it cannot be
    fetched or does not start."""

    called = "OpenSearch"
    ports_needed = 2
    patience = 240.0  # ten on a machine that has nothing else to do
    program: ClassVar[str] = "opensearch"
    organisation: ClassVar[str] = "org.opensearch"

    def __init__(self, place: Path, version: str = VERSION, **settings: str) -> None:
        super().__init__(place_for(self, place, self.program))
        self._version, self._more = version, settings

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def start(self) -> None:
        coordinate = f"{self.organisation}.distribution.integ-test-zip:{self.program}:{self._version}"
        zipped, java = archive(f"{self.program}-{self._version}", coordinate), self._java()
        self._start(lambda first: self._begin(zipped, java, first))

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What it says to one request: JSON. OSError if it is not there."""
        import urllib3

        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib3.PoolManager(retries=False, timeout=10, ca_certs=self._authority) as http:
                answer = http.request(method, self.url + path, body=data, headers=self._headers())
                return json.loads(answer.data)
        except urllib3.exceptions.HTTPError as error:
            raise OSError(str(error)) from error

    _authority: str | None = None  # of its certificate

    def _headers(self) -> dict[str, str]:
        return {"Content-Type": "application/json"}

    def _java(self) -> Path:
        """The home of the Java that it runs on."""
        return find_java().path.resolve().parents[1]

    def _begin(self, zipped: Path, java: Path, first: bool) -> "subprocess.Popen[bytes]":
        program, data = self.place / "program", self.place / "data"
        if first:
            for left in (program, data):
                shutil.rmtree(left, ignore_errors=True)
            with zipfile.ZipFile(zipped) as files:
                files.extractall(program)
            data.mkdir(parents=True)
        (home,) = program.iterdir()
        (home / "config" / f"{self.program}.yml").write_text(self._settings(data))
        for script in (home / "bin").iterdir():
            script.chmod(0o755)
        if first:
            self._equip(home, java)
            give_away(self.place)
        command = [*not_as_root(self.called, *while_this_lives("TERM")), str(home / "bin" / self.program)]
        return self._launch(command, self._env(java) | {"PATH": os.environ["PATH"]})

    def _equip(self, home: Path, java: Path) -> None:
        """Before the first start."""

    def _env(self, java: Path) -> dict[str, str]:
        return {"OPENSEARCH_JAVA_HOME": str(java), "OPENSEARCH_JAVA_OPTS": _MEMORY}

    def _settings(self, data: Path) -> str:
        http, transport = self.ports
        settings = {"network.host": "127.0.0.1", "http.port": http, "transport.port": transport, "discovery.type": "single-node"}
        settings |= {
            "path.data": str(data),
            "path.logs": str(self.place / "logs"),
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            **self._more,
        }
        return "".join(f"{name}: {value}\n" for name, value in settings.items())

    def _answers(self) -> bool:
        with suppress(OSError, ValueError):
            return self.ask("GET", "/_cluster/health").get("status") in ("green", "yellow")
        return False


@dataclass(frozen=True)
class Guard:
    """certificate: for localhost, with its key. Users by name, with password and role; roles as in roles.yml."""

    certificate: Path
    users: dict[str, tuple[str, str]]
    roles: str

    def equip(self, config: Path, tool: list[str], env: dict[str, str]) -> None:
        certificate, begin, key = self.certificate.read_text().partition("-----BEGIN PRIVATE KEY-----")
        (config / "certificate.pem").write_text(certificate)
        (config / "key.pem").write_text(begin + key)
        (config / "roles.yml").write_text(self.roles)
        for name, (password, role) in self.users.items():
            made = subprocess.run([*tool, "useradd", name, "-p", password, "-r", role], env=env, capture_output=True, check=False)
            if made.returncode:
                raise NotToBeHad(f"Elasticsearch takes no users: {made.stderr.decode()[:500]}")

    def settings(self) -> dict[str, str]:
        files = {f"xpack.security.http.ssl.{what}": f"{what}.pem" for what in ("certificate", "key")}
        return {"xpack.security.enabled": "true", "xpack.security.http.ssl.enabled": "true", **files}


class ElasticsearchServer(OpenSearchServer):
    """The same of Elasticsearch, one of the versions in ELASTICSEARCH. guard: it speaks TLS, and knows users, of whom the first may
    ask for its health."""

    called = "Elasticsearch"
    program = "elasticsearch"
    organisation = "org.elasticsearch"

    def __init__(self, place: Path, version: str = "8.19.21", guard: Guard | None = None) -> None:
        self._guard, self._authority = guard, str(guard.certificate) if guard else None
        settings = guard.settings() if guard else {"xpack.security.enabled": "false"}
        super().__init__(place, version, **settings, **{"xpack.security.autoconfiguration.enabled": "false"})

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}" if self._guard else super().url

    def _headers(self) -> dict[str, str]:
        import urllib3

        named = [f"{name}:{password}" for name, (password, _) in self._guard.users.items()] if self._guard else []
        return super()._headers() | (urllib3.make_headers(basic_auth=named[0]) if named else {})

    def _equip(self, home: Path, java: Path) -> None:
        if self._guard:
            env = self._env(java) | {"PATH": os.environ["PATH"]}
            self._guard.equip(home / "config", [str(home / "bin" / "elasticsearch-users")], env)

    def _java(self) -> Path:
        """The one that Spark has, or another one beside it."""
        least, spark = ELASTICSEARCH[self._version], find_java()
        if spark.major >= least:
            return super()._java()
        for home in sorted(super()._java().parent.iterdir()):
            with suppress(OSError, IndexError, ValueError):
                (version,) = (line for line in (home / "release").read_text().splitlines() if line.startswith("JAVA_VERSION="))
                if int(version.split('"')[1].split(".")[0]) >= least:
                    return home
        raise NotToBeHad(f"Elasticsearch {self._version} needs Java {least}, and there is none beside {spark.path}")

    def _env(self, java: Path) -> dict[str, str]:
        return {"ES_JAVA_HOME": str(java), "ES_JAVA_OPTS": _MEMORY}
