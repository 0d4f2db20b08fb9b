"""penstock bridge, as a user calls it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Queue
from penstock.log.consumer import records
from penstock.log.open import open_log
from unit.cli.calling import Call, calls_of
from waiting import until

PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()", "bridge"]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PENSTOCK_QUEUES", "")
    return calls_of("bridge", "run")


def values(topic: str) -> list[object]:
    return [record.value for record in records(open_log().topic(topic))]


def test_messages_go_into_a_topic_that_is_made_for_them_and_back(call: Call) -> None:
    Queue.open("emails").send_many(["a", "b", "c"])
    there = call("queue:emails", "topic:archive")
    assert there.code == 0
    assert there.err.startswith("bridge emails-to-archive: 3 moved in ")
    assert values("archive") == [b"a", b"b", b"c"]
    Queue.open("again")
    assert call("topic:archive", "queue:again", "--name", "back").err.startswith("bridge back: 3 moved in ")
    assert [letter.id for letter in Queue.open("again").peek()] == ["archive/0/0", "archive/0/1", "archive/0/2"]
    assert call("topic:archive", "queue:again", "--name", "back", "--quiet").err.startswith("bridge back: 0 moved in ")


def test_doubles_are_told(call: Call) -> None:
    emails = Queue.open("emails")
    for _ in range(2):
        emails.send("a", id="one")
        answer = call("queue:emails", "topic:archive", "--span", "1 hour", "--remember", "10")
    assert answer.err.startswith("bridge emails-to-archive: 0 moved · 1 doubles in ")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("queue:emails", "queue:others"), 2, "from a queue to a topic"),
        (("topic:emails", "topic:others"), 2, "from a topic to a queue"),
        (("emails", "topic:others"), 2, "neither queue:NAME nor topic:NAME"),
        (("queue:", "topic:others"), 2, "neither queue:NAME nor topic:NAME"),
        (("queue:nobody", "topic:others"), 3, "there is no queue nobody"),
        (("topic:nobody", "queue:emails"), 3, "nobody"),
        (("queue:emails", "topic:emails"), 2, "would never end"),
        (("topic:others", "queue:emails", "--span", "1 hour"), 2, "for bridges into a topic"),
        (("queue:emails", "topic:others", "--name", "a/b"), 2, "cannot name a bridge"),
    ],
)
def test_what_is_no_bridge_is_refused(call: Call, words: tuple[str, ...], code: int, told: str) -> None:
    Queue.open("emails")
    answer = call(*words)
    assert answer.code == code
    assert told in answer.err


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_bridge_that_follows_ends_cleanly_and_says_what_it_did(call: Call, stop: signal.Signals) -> None:
    emails = Queue.open("emails")
    command = [*PENSTOCK, "run", "queue:emails", "topic:archive", "--follow"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert until(lambda: "archive" in open_log().topics(), 60)
        emails.send_many(["a", "b"])
        assert until(lambda: len(values("archive")) == 2, 60)
        assert until(lambda: emails.state().lent == 0, 60)
        process.send_signal(stop)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err.startswith("bridge emails-to-archive: 2 moved in ")
