"""A topic of Kafka is made with its settings, or finished by whoever finds it, wherever its maker was stopped; two do not mix."""

import threading
import uuid
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.core.schema import Schema
from penstock.errors import AlreadyThere, NotFound
from penstock.log.kafka import catalog, log
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.port import TopicSpec
from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.timeout(120)
SPEC = TopicSpec("orders", 2, Schema.of("n long, at timestamp"), "at", writer="shop")


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def settings(kafka_broker: KafkaBroker) -> KafkaSettings:
    return KafkaSettings.of(f"{kafka_broker.url}?prefix=t{uuid.uuid4().hex[:12]}.")


def stopped(*args: Any) -> Any:
    raise Killed


def killed_when(point: str, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the topic, and dies on the way."""
    made, announce = KafkaLog._make, catalog.Catalog.announce
    patches: dict[str, tuple[Any, str, Any]] = {
        "announced": (KafkaLog, "_make", stopped),
        "made, without an answer": (KafkaLog, "_make", lambda *args: stopped(made(*args))),
        "made": (log, "wait_for", stopped),
        "known": (KafkaLog, "_adopted", stopped),
        "written": (catalog.Catalog, "announce", lambda *args: announce(*args) if args[-1] else stopped()),
    }
    with monkeypatch.context() as patched:
        patched.setattr(*patches[point])
        with pytest.raises(Killed):
            KafkaLog(settings).create(SPEC)
    catalog._CATALOGS.drop(settings, lambda gone: None)  # as another process sees it


@pytest.mark.parametrize("point", ["made, without an answer", "made", "known", "written"])
def test_a_topic_whose_maker_was_killed_has_its_settings(
    point: str, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_when(point, settings, monkeypatch)
    with pytest.raises(AlreadyThere):
        KafkaLog(settings).create(SPEC)
    assert KafkaLog(settings).topic("orders").spec == SPEC
    catalog._CATALOGS.drop(settings, lambda gone: None)
    assert KafkaLog(settings).topic("orders").spec == SPEC


def test_a_topic_that_is_finished_between_two_looks_has_its_settings(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_when("made", settings, monkeypatch)
    finished, others = KafkaLog._finished, [True]

    def late(self: KafkaLog, on_broker: str, id: str) -> Any:
        if others and others.pop():
            finished(self, on_broker, id)  # by somebody else, just now
        return finished(self, on_broker, id)

    monkeypatch.setattr(KafkaLog, "_finished", late)
    assert KafkaLog(settings).topic("orders").spec == SPEC


def test_a_topic_that_is_listed_before_it_can_be_described_is_waited_for(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    KafkaLog(settings).create(SPEC)
    describe, looks = log.describe, list[str]()

    def blind_at_first(settings: KafkaSettings, name: str) -> Any:
        looks.append(name)
        return describe(settings, name) if len(looks) > 2 else None

    monkeypatch.setattr(catalog.Catalog, "topic", lambda self, name: (blind_at_first(settings, name), None))
    monkeypatch.setattr(log, "describe", blind_at_first)
    assert KafkaLog(settings).topic("orders").spec == SPEC
    assert len(looks) == 3
    with pytest.raises(NotFound, match="there is no topic orderz"):
        KafkaLog(settings).topic("orderz")


def test_a_deleted_topic_is_gone_once_it_is_listed_no_more(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    KafkaLog(settings).create(SPEC)
    names, looks = log.topic_names, list[int]()

    def listed_for_a_while(given: KafkaSettings) -> list[str]:
        looks.append(1)
        return [*names(given), f"{given.prefix}orders"] if len(looks) < 4 else names(given)

    monkeypatch.setattr(log, "topic_names", listed_for_a_while)
    KafkaLog(settings).delete("orders")
    assert "orders" not in KafkaLog(settings).topics()
    assert KafkaLog(settings).create(SPEC).spec == SPEC


def test_what_was_only_announced_is_made_again_and_is_nothing_to_a_topic_of_others(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_when("announced", settings, monkeypatch)
    with pytest.raises(NotFound):
        KafkaLog(settings).topic("orders")
    name = settings.prefix + "orders"
    admin = AdminClient(settings.client())
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    assert KafkaLog(settings).topic("orders").spec == TopicSpec("orders", 2)
    KafkaLog(settings).delete("orders")
    assert KafkaLog(settings).create(SPEC).spec == KafkaLog(settings).topic("orders").spec == SPEC


@pytest.mark.parametrize("_", range(3))
def test_of_two_makers_at_once_one_wins_and_both_see_its_settings(_: int, settings: KafkaSettings) -> None:
    specs = [SPEC, TopicSpec("orders", 3, Schema.of("other string"))]
    won: list[TopicSpec] = []
    seen: list[TopicSpec] = []
    start = threading.Barrier(2)

    def make(spec: TopicSpec) -> None:
        own = KafkaLog(settings)
        start.wait(30)
        try:
            won.append(own.create(spec).spec)
        except AlreadyThere:
            seen.append(own.topic("orders").spec)

    makers = [threading.Thread(target=make, args=(spec,)) for spec in specs]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)
    assert len(won) == 1
    assert seen == won
    assert KafkaLog(settings).topic("orders").spec == won[0]
