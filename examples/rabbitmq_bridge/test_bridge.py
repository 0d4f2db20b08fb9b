"""Each order stands in the topic once and is shipped once, with a real RabbitMQ, although bridges and broker are killed."""

import os
import re
import runpy
import secrets
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from penstock import Queue, open_log
from penstock.cli.main import run
from penstock.errors import NotFound
from penstock.log.consumer import records
from penstock.log.port import TopicSpec
from penstock.queue.rabbitmq.queues import RabbitQueues
from penstock.testing.servers.rabbitmq_server import RabbitServer

HERE = Path(__file__).parent
ORDERS = {f"o{number}" for number in range(300)}
PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
LEFT = "left: 700 apples, 800 pears, 900 plums\n"


@pytest.fixture
def queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rabbitmq_server: RabbitServer) -> Iterator[RabbitQueues]:
    url = f"{rabbitmq_server.url}?prefix=t{secrets.token_hex(4)}."
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PENSTOCK_QUEUES", url)
    monkeypatch.chdir(tmp_path)
    with RabbitQueues(url) as queues:
        yield queues
        for name in queues.names():
            with suppress(NotFound):
                queues.delete(name)


def told(start: str) -> list[list[str]]:
    """The commands of the README that begin like this."""
    lines = re.findall(r"^\$ (.*)$", (HERE / "README.md").read_text(), re.MULTILINE)
    return [shlex.split(line)[1:] for line in lines if line.startswith(start)]


def shop(queues: RabbitQueues, server: RabbitServer) -> None:
    runpy.run_path(str(HERE / "shop.py"))["main"](server.url, f"{queues.settings.prefix}orders")


def ship() -> None:
    runpy.run_path(str(HERE / "stock.py"))["main"]()


def in_topic() -> Counter[str]:
    return Counter(orjson.loads(record.value)["order_id"] for record in records(open_log().topic("orders")))  # type: ignore[arg-type]


def test_the_readme_does_what_it_says(
    queues: RabbitQueues, rabbitmq_server: RabbitServer, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = told("penstock")
    assert run(commands[0]) == 0
    shop(queues, rabbitmq_server)
    assert [run(command) for command in commands[1:]] == [0] * (len(commands) - 1)
    ship()
    said = capsys.readouterr()
    readme = re.sub(r"in [\d.]+ s", "", (HERE / "README.md").read_text())
    for line in [*said.out.splitlines(), *said.err.splitlines()]:
        assert re.sub(r"in [\d.]+ s", "", line).rstrip() in readme or "is made" in line
    assert in_topic() == Counter(ORDERS)


def bridge(source: str, target: str, killed_at: int | None, done: "Done") -> None:
    """Runs it, in small steps; killed when so many messages are there."""
    command = [*PENSTOCK, "bridge", "run", source, target, "--batch", "5"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=dict(os.environ)) as process:
        while killed_at is not None and process.poll() is None:
            if done() >= killed_at:
                process.kill()
    assert killed_at is not None or process.returncode == 0


class Done:
    """How far a bridge has come."""

    def __init__(self, queues: RabbitQueues, into: str) -> None:
        self._queues, self._into = queues, into

    def __call__(self) -> int:
        if self._into == "topic":
            return sum(end.next for end in open_log().topic("orders").ends().values())
        return self._queues.queue("shipping").state().ready


def test_killed_bridges_and_a_killed_broker_lose_no_order_and_ship_none_twice(
    queues: RabbitQueues, rabbitmq_server: RabbitServer, capsys: pytest.CaptureFixture[str]
) -> None:
    Queue.open("orders").close()
    Queue.create("shipping", tries=100).close()
    open_log().create(TopicSpec("orders"))
    shop(queues, rabbitmq_server)
    rabbitmq_server.flush()
    for killed_at in (20, 100, None):
        bridge("queue:orders", "topic:orders", killed_at, Done(queues, "topic"))
    assert in_topic() == Counter(ORDERS)
    bridge("topic:orders", "queue:shipping", 100, Done(queues, "queue"))
    rabbitmq_server.kill()
    rabbitmq_server.start()
    bridge("topic:orders", "queue:shipping", None, Done(queues, "queue"))
    ship()
    said = capsys.readouterr().out
    assert said.startswith("300 orders shipped, ")
    assert said.endswith(LEFT)
