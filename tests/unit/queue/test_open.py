"""Where queues are."""

from pathlib import Path

import pytest

from penstock import Queue
from penstock.errors import BadInput, NotFound
from penstock.log.open import open_log


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PENSTOCK_QUEUES", raising=False)
    monkeypatch.delenv("PENSTOCK_LOG", raising=False)
    return tmp_path / "home"


def test_a_queue_is_made_when_it_is_opened_and_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    Queue.open("emails").send("x")
    assert [letter.text for letter in Queue.open("emails").peek()] == ["x"]
    assert Queue.open("emails", home=tmp_path / "other").peek() == []
    assert open_log().topics() == ["emails", "emails.dead"]


def test_queues_in_memory_are_shared_by_name_in_one_process() -> None:
    Queue.create("test-open-shared", at="memory:", tries=2).send("x")
    other = Queue.open("test-open-shared", at="memory:")
    assert [letter.text for letter in other.peek()] == ["x"]
    assert other.spec.tries == 2
    assert "gone when it ends" in other.state().notes[0]


def test_the_environment_says_where_queues_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_QUEUES", "memory:")
    Queue.open("test-open-environment").send("x")
    monkeypatch.delenv("PENSTOCK_QUEUES")
    assert Queue.open("test-open-environment").peek() == []


def test_an_address_that_leads_nowhere_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="not an address of queues"):
        Queue.open("emails", at="http://host")
    monkeypatch.setenv("PENSTOCK_LOG", "kafka://127.0.0.1:1")
    with pytest.raises(BadInput, match="holds no queues"):
        Queue.open("emails")


def test_dead_letters_of_a_queue_that_was_deleted_are_told() -> None:
    emails = Queue.open("emails")
    emails._queues.delete("emails.dead")
    with pytest.raises(NotFound):
        _ = emails.dead_letters
