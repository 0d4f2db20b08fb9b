"""The consumer groups of a real Kafka broker pass the suite of every keeper of groups, in so far as Kafka has what it asks for."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.time import SystemClock
from penstock.errors import BadInput, Mismatch, NotFound, Unreachable
from penstock.log.groups.consumer import GroupConsumer
from penstock.log.groups.lag import lags
from penstock.log.groups.port import Groups, Membership, Source, Standing
from penstock.log.kafka.groups.keeper import KafkaGroups
from penstock.log.kafka.groups.membership import KafkaMembership
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.port import Sender, TopicSpec
from penstock.testing.contracts.groups import GroupsContract, settle
from penstock.testing.servers.kafka_broker import KafkaBroker
from waiting import until


class TestKafkaGroups(GroupsContract):
    lease, told_lease = 60.0, None  # Kafka does not tell it

    @pytest.fixture(autouse=True)
    def broker(self, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        self.log = KafkaLog(KafkaSettings.of(f"{kafka_broker.url}?prefix=g{uuid.uuid4().hex[:12]}."))
        seated: list[KafkaMembership] = []
        real = KafkaGroups.join

        def noted(*args: object, **more: object) -> KafkaMembership:
            seated.append(real(*args, **more))  # type: ignore[arg-type]
            return seated[-1]

        monkeypatch.setattr(KafkaGroups, "join", noted)
        yield
        for member in seated:
            member.leave()

    def make(self, place: Path) -> KafkaGroups:
        return KafkaGroups(self.log.settings)

    def source(self, topic: str, partitions: int) -> Source:
        made = self.log.create(TopicSpec(topic, partitions))
        return Source(topic, made.id, partitions)

    def made_again(self, source: Source) -> Source:
        self.log.delete(source.topic)
        return self.source(source.topic, source.partitions)

    def grown(self, source: Source, partitions: int) -> Source:
        self.log.alter(replace(self.log.topic(source.topic).spec, partitions=partitions))
        return source._replace(partitions=partitions)

    def check_asked(self, held: Standing, empty: Standing) -> None:
        assert held.asked, "who waits is not told; who is asked is"

    def test_a_topic_made_again_is_refused_to_members_old_and_new(
        self, groups: Groups, join: Callable[..., Membership], views: Source
    ) -> None:
        """A gap: Kafka forgets the offsets of a topic that is deleted. A member that is there notices; a new one begins anew."""
        member = join()
        settle(views, member)
        member.commit({0: 10})
        again = self.made_again(views)
        with pytest.raises(Mismatch, match="deleted and made again"):
            member.heartbeat(again)
        member.leave()
        assert until(lambda: not groups.positions("page-views"))
        [standing] = settle(again, groups.join("web", again, {0: 1}, label="test", lease=self.lease))
        assert standing.owned == {0: 1, 1: 0, 2: 0}

    def test_a_group_of_several_topics_is_forgotten_whole_or_not_at_all(self, groups: Groups, views: Source) -> None:
        """A gap: the client has no call for the offsets of one topic."""
        groups.put("web", views, {0: 1})
        groups.put("web", self.source("clicks", 1), {0: 1})
        with pytest.raises(BadInput, match="only as a whole"):
            groups.forget("web", "clicks")
        groups.forget("web")
        with pytest.raises(NotFound):
            groups.describe("web")

    def test_a_lease_that_the_broker_does_not_take_is_told(self, groups: Groups, views: Source) -> None:
        with pytest.raises(BadInput, match="does not accept a lease of 1 seconds"):
            groups.join("web", views, {}, label="test", lease=1)

    def test_offsets_are_seen_by_other_tools_and_theirs_are_seen_here(self, groups: Groups, views: Source) -> None:
        import confluent_kafka as kafka

        prefix = self.log.settings.prefix
        groups.put("web", views, {0: 7})
        other = kafka.Consumer({"bootstrap.servers": self.log.settings.servers[0], "group.id": f"{prefix}web"})
        place = kafka.TopicPartition(f"{prefix}page-views", 0)
        assert [found.offset for found in other.committed([place], timeout=30)] == [7]
        other.commit(offsets=[kafka.TopicPartition(f"{prefix}page-views", 0, 9)], asynchronous=False)
        other.close()
        [state] = groups.describe("web")
        assert (state.topic_id, state.partitions[0].offset) == (views.id, 9)

    def test_an_offset_that_the_broker_does_not_tell_is_not_taken_for_none(
        self, groups: Groups, join: Callable[..., Membership], views: Source
    ) -> None:
        import confluent_kafka as kafka

        class Untold:
            """The member's consumer; of one offset the broker says that it cannot tell it now."""

            def __init__(self, consumer: Any) -> None:
                self.consumer, self.told = consumer, False

            def __getattr__(self, name: str) -> Any:
                return getattr(self.consumer, name)

            def committed(self, wanted: list[Any], timeout: float) -> list[Any]:
                found = self.consumer.committed(wanted, timeout=timeout)
                error = None if self.told else kafka.KafkaError(kafka.KafkaError.UNSTABLE_OFFSET_COMMIT)
                self.told = True
                failed = SimpleNamespace(partition=found[0].partition, offset=-1001, metadata=None, error=error)
                return [failed if error else found[0], *found[1:]]

        groups.put("web", views, {0: 7, 1: 8, 2: 9})
        member = join()
        assert isinstance(member, KafkaMembership)
        member._consumer = Untold(member._consumer)
        with pytest.raises(Unreachable):
            settle(views, member)
        [standing] = settle(views, member)
        assert standing.owned == {0: 7, 1: 8, 2: 9}
        [state] = groups.describe("web")
        assert [part.offset for part in state.partitions] == [7, 8, 9]

    def test_consumers_share_a_topic_and_one_goes_on_where_the_other_ended(self, views: Source) -> None:
        topic = self.log.topic("page-views")
        for partition in range(3):
            topic.append(partition, pa.record_batch({"value": pa.array([b"x"] * 5, pa.binary())}))
        with GroupConsumer(self.log, "web", "page-views") as first, GroupConsumer(self.log, "web", "page-views") as second:
            assert until(lambda: bool(first.partitions and second.partitions))
            with ThreadPoolExecutor(2) as pool:
                seen = pool.map(lambda member: [(r.partition, r.offset) for r in member.records(follow=False)], [first, second])
        assert sorted(place for mine in seen for place in mine) == [(p, o) for p in range(3) for o in range(5)]
        topic.append(1, pa.record_batch({"value": pa.array([b"y"], pa.binary())}))
        with GroupConsumer(self.log, "web", "page-views") as third:
            assert [(record.partition, record.value) for record in third.records(follow=False)] == [(1, b"y")]

    def test_what_transactions_leave_at_the_end_is_passed_over(self, groups: Groups, views: Source) -> None:
        topic = self.log.topic("page-views")
        topic.append(0, pa.record_batch({"value": pa.array([b"x"] * 2, pa.binary())}), sender=Sender("p", 0, 0))
        with GroupConsumer(self.log, "web", "page-views") as member:
            assert [record.offset for record in member.records(follow=False)] == [0, 1]
        [state] = groups.describe("web")
        found = lags(self.log, state, SystemClock().now())
        assert found is not None
        assert found[0].end > 2, "the end of the transaction has an offset"
        assert [lag.records for lag in found.values()] == [0, 0, 0]
