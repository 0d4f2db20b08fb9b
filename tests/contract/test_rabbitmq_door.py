"""The door of queues over a real RabbitMQ: sending, consuming, working, dead letters sent back, the command line."""

import asyncio
import json
import secrets
from collections.abc import Iterator

import pytest

from penstock import Queue
from penstock.queue.client.worker import Worked
from penstock.queue.message import Received
from penstock.testing.servers.rabbitmq_server import RabbitServer
from unit.cli.calling import Answer, calls_of
from waiting import until


@pytest.fixture
def url(rabbitmq_server: RabbitServer) -> str:
    return f"{rabbitmq_server.url}?prefix=t{secrets.token_hex(4)}."


@pytest.fixture
def emails(url: str) -> Iterator[Queue]:
    with Queue.create("emails", at=url, tries=3) as queue:
        yield queue
        for name in ("emails", "emails.dead"):
            queue._queues.delete(name)


def test_messages_are_sent_taken_and_settled(emails: Queue) -> None:
    emails.send_many([{"n": 1}, {"n": 2}, {"n": 3}])
    with emails.consumer(prefetch=1) as consumer:
        for message in consumer:
            with message:
                if message.json() == {"n": 3}:
                    consumer.stop()
    assert until(lambda: emails.state().ready == 0)


def test_a_poison_message_becomes_a_dead_letter_and_goes_back_repaired(emails: Queue) -> None:
    emails.send_many(["good", "poison", "good"])

    def handle(message: Received) -> None:
        if message.text == "poison":
            raise ValueError("no such address")

    assert emails.work(handle, workers=2, retry="10 ms", until_empty=True) == Worked(2, 3, 0, 0)
    dead = emails.dead_letters
    assert until(lambda: [letter.text for letter in dead.peek()] == ["poison"])
    [letter] = dead.peek()
    assert letter.dead
    assert (letter.dead.count, letter.dead.reason.splitlines()[0]) == (3, "ValueError: no such address")
    assert dead.redrive(edit=lambda m: "cured").moved == 1
    seen: list[str] = []
    assert emails.work(lambda message: seen.append(message.text), until_empty=True).done == 1
    assert seen == ["cured"]


def test_leaving_gives_back_what_is_not_settled(emails: Queue) -> None:
    emails.send_many(["a", "b", "c"])
    with emails.consumer() as consumer:
        [first] = consumer.receive(1, wait="10 seconds")
        assert first.text == "a"
    with emails.consumer() as consumer:
        seen: list[str] = []
        while len(seen) < 3:
            seen += [message.text for message in consumer.receive(3, wait="10 seconds")]
    assert sorted(seen) == ["a", "b", "c"]


def test_it_works_in_an_event_loop(emails: Queue) -> None:
    async def main() -> None:
        for n in range(5):
            await emails.send_async(str(n))
        assert (await emails.work_async(lambda message: None, until_empty=True)).done == 5

    asyncio.run(asyncio.wait_for(main(), 120))


def test_the_command_line_leads_there(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_QUEUES", "")

    queue = calls_of("queue")

    def call(*words: str, given: str = "") -> Answer:
        return queue(*words, "--at", url, given=given)

    assert call("create", "emails", "--lease", "1 minute")[0] == 0
    assert "sent 3 messages to emails · 0 rejected" in call("send", "emails", given="1\n2\n3\n")[2]
    assert [json.loads(line)["queue"] for line in call("list")[1].splitlines()] == ["emails", "emails.dead"]
    code, out, _ = call("receive", "emails", "--max", "2", "--wait", "10 seconds", "--reject", "--reason", "test data")
    assert (code, [json.loads(line)["body"] for line in out.splitlines()]) == (0, [1, 2])
    assert until(lambda: "moved 2 messages" in call("redrive", "emails.dead", "--output", "jsonl")[2])
    assert json.loads(call("describe", "emails")[1])["ready"] == 3
    assert call("purge", "emails", "--yes")[0] == 0
    for name in ("emails", "emails.dead"):
        assert call("delete", name, "--yes")[0] == 0
    assert call("describe", "emails")[0] == 3
