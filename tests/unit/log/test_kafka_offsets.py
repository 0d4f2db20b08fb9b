"""The bounds of a partition as a restarting broker tells them: an answer without a number is asked for again, and never used."""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from penstock.errors import LogError
from penstock.log.kafka import client
from penstock.log.kafka.reaching import Contact
from penstock.log.kafka.settings import KafkaSettings

SETTINGS = KafkaSettings.of("kafka://127.0.0.1:9")
INVALID = confluent_kafka.OFFSET_INVALID


class Admin:
    """Answers with these offsets, one after the other: earliest, latest, and the newest record, for every partition."""

    def __init__(self, *answers: tuple[int, int, int]) -> None:
        self._told: Iterator[int] = iter([offset for answer in answers for offset in answer])

    def list_offsets(self, wanted: dict[Any, Any], **more: Any) -> dict[Any, "Future[Any]"]:
        offset = next(self._told)
        found: dict[Any, Future[Any]] = {place: Future() for place in wanted}
        for future in found.values():
            future.set_result(SimpleNamespace(offset=offset, timestamp=7))
        return found

    def poll(self, seconds: float) -> None:
        pass

    def list_topics(self, timeout: float) -> None:
        pass


def reached(admin: Admin, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets it stand for the broker, which has answered before."""
    contact = Contact(settings.servers, "plaintext")
    contact.answered()
    monkeypatch.setattr(client, "_ADMINS", client.PerProcess())
    client._ADMINS.get(settings.connection, lambda: client.Reached(admin, contact))


@pytest.mark.parametrize("half", [(INVALID, INVALID, INVALID), (0, INVALID, 3), (INVALID, 9, 3)])
def test_an_end_that_the_broker_did_not_tell_is_asked_for_again(half: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    reached(Admin(half, half, (2, 9, 3)), SETTINGS, monkeypatch)  # type: ignore[arg-type]
    assert client.offsets(SETTINGS, "orders", [0]) == {0: client.Bounds(2, 9, 7)}


def test_an_end_that_is_never_told_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = replace(SETTINGS, patience=0.1)
    reached(Admin(*[(INVALID, INVALID, INVALID)] * 100), impatient, monkeypatch)
    with pytest.raises(LogError, match="cannot be used"):
        client.offsets(impatient, "orders", [0])


class Making(Admin):
    """Describes a topic of one partition; the first answers about its offsets are that there is none."""

    def __init__(self, unknown: int) -> None:
        super().__init__(*[(2, 9, 3)] * 100)
        self._unknown = unknown

    def describe_topics(self, wanted: Any, **more: Any) -> dict[str, "Future[Any]"]:
        found: Future[Any] = Future()
        found.set_result(SimpleNamespace(topic_id=confluent_kafka.Uuid(1, 2), partitions=[0]))
        return {"orders": found}

    def list_offsets(self, wanted: dict[Any, Any], **more: Any) -> dict[Any, "Future[Any]"]:
        self._unknown -= 1
        if self._unknown < 0:
            return super().list_offsets(wanted, **more)
        found: dict[Any, Future[Any]] = {place: Future() for place in wanted}
        for future in found.values():
            error = confluent_kafka.KafkaError(confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART)
            future.set_exception(confluent_kafka.KafkaException(error))
        return found


def test_a_topic_that_is_there_by_one_answer_and_not_by_the_other_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reached(Making(unknown=2), SETTINGS, monkeypatch)
    topic, bounds = client.look(SETTINGS, {"orders": [0]})["orders"]
    assert topic is not None
    assert topic.partitions == 1
    assert set(bounds) == {0}


def test_partitions_that_a_topic_does_not_have_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reached(Making(unknown=100), SETTINGS, monkeypatch)
    topic, bounds = client.look(SETTINGS, {"orders": [0, 1]})["orders"]
    assert topic is not None
    assert bounds == {}
