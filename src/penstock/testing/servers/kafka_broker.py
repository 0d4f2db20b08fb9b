"""A real Kafka broker for tests: one node on loopback, its data in a directory of the test.

    with KafkaBroker(tmp_path) as broker:
        log = open_log(url=broker.url)

It can be stopped, killed, frozen and started again with its data and under its address."""

import os
import shutil
import socket
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.engine.spark.java import find_java
from penstock.errors import NoJava
from penstock.testing.servers.jars import NotToBeHad, fetched, once
from penstock.testing.servers.processes import PATIENCE, Server, free_ports

VERSION = "4.3.1"
BROKER_JARS = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4")
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
LIGHT = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
ARCHIVE = "classes.jsa"

# One node holds all internal topics; retention, compaction and time-outs of transactions are looked after several times a second.
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.initial.task.delay.ms=100
log.retention.check.interval.ms=300
log.cleaner.backoff.ms=300
log.cleaner.dedupe.buffer.size=4194304
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=200
"""


class KafkaBroker(Server):
    """The broker of `place`. Started by `with`, or by `start()` and ended by `stop()`. NotToBeHad, with the reason, if there
    is no Java, no client, no jars or no start."""

    called = "the Kafka broker"
    ports_needed = 2

    def __init__(self, place: Path, **settings: str) -> None:
        super().__init__(place)
        self._settings = settings

    @property
    def url(self) -> str:
        return f"kafka://{self.address}"

    def start(self) -> None:
        if not find_spec("confluent_kafka"):
            raise NotToBeHad("Kafka's client is not installed (pip install confluent-kafka fastavro)")
        self.start_as(_prepared())

    def start_as(self, program: list[str]) -> None:
        # A broker that is killed leaves the native libraries it unpacked: not in the temporary directory that all share.
        place = [f"-Djava.io.tmpdir={self.place}", "-XX:+PerfDisableSharedMem"]
        command = [str(find_java().path), *LIGHT, *place, *program, str(self.place / "server.properties")]

        def begin(first: bool) -> "subprocess.Popen[bytes]":
            self._lay_out(first)
            return self._launch(command)

        self._start(begin)

    def _lay_out(self, first: bool) -> None:
        data = self.place / "data"
        if first:
            shutil.rmtree(data, ignore_errors=True)
            shutil.copytree(_template(), data)
        port, controller = self.ports
        text = SETTINGS.format(port=port, controller=controller, data=data)
        more = "".join(f"{name.replace('_', '.')}={value}\n" for name, value in self._settings.items())
        (self.place / "server.properties").write_text(text + more)

    def _answers(self) -> bool:
        """Its metadata names a broker."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if _listens(self.port):
            with suppress(KafkaException):
                options: dict[str, Any] = {"bootstrap.servers": self.address, "log_level": 0}
                return bool(AdminClient(options).list_topics(timeout=2).brokers)
        return False


def _program(jars: Path) -> list[str]:
    return ["-cp", os.pathsep.join(map(str, sorted(jars.glob("*.jar")))), "kafka.Kafka"]


def _prepared() -> list[str]:
    """The program, with the archive of its classes for this Java, which saves a second or two at each start."""
    try:
        java = find_java()
    except NoJava as error:
        raise NotToBeHad(str(error)) from error
    program = _program(fetched(f"kafka-{VERSION}", *BROKER_JARS))
    build = "".join(c if c.isalnum() else "-" for c in java.text)
    archive = once(f"kafka-{VERSION}-java-{build}", lambda place: _rehearse(place, program)) / ARCHIVE
    return [f"-XX:SharedArchiveFile={archive}", *program]


def _rehearse(place: Path, program: list[str]) -> None:
    """One broker that starts, answers and ends, and writes down its classes."""
    broker = KafkaBroker(place)
    broker.start_as([f"-XX:ArchiveClassesAtExit={place / ARCHIVE}", *program])
    broker.stop()
    shutil.rmtree(place / "data")


def _template() -> Path:
    """A formatted data directory."""
    return once(f"kafka-{VERSION}-formatted", _format) / "data"


def _format(place: Path) -> None:
    jars = fetched(f"kafka-{VERSION}", *BROKER_JARS)
    port, controller = free_ports(2)
    settings = place / "server.properties"
    settings.write_text(SETTINGS.format(port=port, controller=controller, data=place / "data"))
    program = ["-cp", f"{jars}/*", "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(settings)]
    done = subprocess.run([str(find_java().path), *LIGHT, *program], capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        raise NotToBeHad(f"Kafka's data directory cannot be formatted: {done.stdout[-300:]}{done.stderr[-300:]}")


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
