"""What a producer does about its records that hang, before it writes: they are given up, or committed where their stamp is."""

import uuid
from collections.abc import Iterator

import pytest

from contract.kafka_torn import left_open, unverified
from penstock.core.time import NEVER
from penstock.errors import SequenceGap, Unreachable
from penstock.log.kafka.client import PerProcess, produce_one
from penstock.log.kafka.headers import sender_header
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.kafka.write import frames as writing
from penstock.log.kafka.write import hanging, senders
from penstock.log.kafka.write.hanging import still_open
from penstock.log.kafka.write.senders import NAME, stamp_of
from penstock.log.kafka.write.transactions import KafkaTransactions, deliver, discarded
from penstock.log.port import Appended, Frame, Part, Sender, TopicSpec
from penstock.log.producers import Producers
from penstock.testing.contracts.log.samples import SCHEMA, typed, values
from penstock.testing.servers.kafka_broker import KafkaBroker
from waiting import until

pytestmark = pytest.mark.timeout(120)
FIRST = Sender("till", 0, 0)
NEXT = Sender("till", 0, 1)


def placed(base: int, rows: int, sender: Sender) -> Frame:
    """A frame of which place and sender are known."""
    return Frame(base, rows, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, sender)


class Shop:
    """A topic of two partitions, and a broker that can leave transactions open."""

    def __init__(self, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker, self._patch = broker, monkeypatch
        prefix = f"t{uuid.uuid4().hex[:12]}."
        self.settings = KafkaSettings.of(f"{broker.url}?prefix={prefix}&transaction_timeout=1")
        self.name, log = f"{prefix}orders", KafkaLog(self.settings)
        self.topic = log.create(TopicSpec("orders", 2, SCHEMA, "at"))
        self.topic.append(1, typed([0]), sender=Sender("else", 0, 0))  # the topic of stamps is there

    def new_process(self) -> None:
        """Nothing is known any more."""
        discarded(self.settings, self._id(FIRST))
        self._patch.setattr(writing, "_MEMORIES", PerProcess())
        self._patch.setattr(senders, "_SENDERS", PerProcess())

    def hang(self, ids: list[int], sender: Sender | None = FIRST, partition: int = 0, id: str = "") -> int:
        """Rows whose transaction nobody will end; the offset of the first."""
        out = self.topic._outgoing(Part(partition, typed(ids)))
        first = [sender_header(sender, len(ids))] if sender else []
        records = [(None, value, first if n == 0 else []) for n, value in enumerate(out.values)]
        return left_open(self.broker, id or self._id(FIRST), self.name, partition, records)

    def stamp(self, sender: Sender, base: int, rows: int, partition: int = 0, *, open: bool = False) -> None:
        """That a frame stands there; open: in a transaction that nobody will end."""
        known = Producers()
        known.remember(placed(base, rows, sender))
        key, number = stamp_of(self.topic.id, partition, sender.id)
        if open:
            left_open(self.broker, self._id(sender), NAME, number, [(key, known.encode(), [])])
        else:
            produce_one(self.settings, NAME, number, known.encode(), key)

    def still_open(self) -> bool:
        stamps = [(NAME, stamp_of(self.topic.id, p, FIRST.id).partition) for p in range(2)]
        return bool(still_open(self.settings, [(self.name, 0), (self.name, 1), *stamps]))

    def _id(self, sender: Sender) -> str:
        return f"penstock/{self.name}/{sender.id}"


@pytest.fixture
def shop(kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    with unverified(kafka_broker):
        yield Shop(kafka_broker, monkeypatch)


def test_rows_that_hang_without_a_stamp_are_given_up(shop: Shop) -> None:
    shop.hang([7, 8])
    shop.topic.append(0, typed([1, 2]), sender=FIRST)
    assert values(shop.topic, "id") == [1, 2]
    assert not shop.still_open()


def test_rows_that_hang_with_a_committed_stamp_are_committed_when_they_are_sent_again(shop: Shop) -> None:
    base = shop.hang([1, 2])
    shop.stamp(FIRST, base, 2)
    assert shop.topic.append(0, typed([1, 2]), sender=FIRST) == Appended(base, 2, duplicate=True)
    assert values(shop.topic, "id") == [1, 2]
    assert not shop.still_open()


@pytest.mark.parametrize("sender", [NEXT, Sender("till", 1, 0), Sender("till", 1, 0, gaps=True)])
def test_rows_of_an_earlier_frame_that_hang_with_a_committed_stamp_are_kept_by_whoever_writes_next(
    sender: Sender, shop: Shop
) -> None:
    base = shop.hang([1, 2])
    shop.stamp(FIRST, base, 2)
    shop.topic.append(0, typed([3]), sender=sender)
    assert values(shop.topic, "id") == [1, 2, 3]


def test_a_fence_keeps_the_rows_of_a_committed_stamp_that_hang(shop: Shop) -> None:
    base = shop.hang([1, 2])
    shop.stamp(FIRST, base, 2)
    shop.topic.append(0, typed([]), sender=Sender("till", 1, 0, gaps=True))
    shop.new_process()
    shop.topic.append(0, typed([3]), sender=Sender("till", 2, 1, gaps=True))
    assert values(shop.topic, "id") == [1, 2, 3]


def test_rows_behind_a_stamped_frame_that_hang_without_a_stamp_are_given_up(shop: Shop) -> None:
    shop.topic.append(0, typed([1, 2]), sender=FIRST)
    shop.new_process()
    shop.hang([7], NEXT)
    shop.topic.append(0, typed([3]), sender=NEXT)
    assert values(shop.topic, "id") == [1, 2, 3]


def test_rows_that_hang_right_behind_a_stamp_without_rows_are_given_up(shop: Shop) -> None:
    """As a flow's sink opens a topic with a stamp alone, and its first epoch hangs."""
    opened, first = Sender("till", 1, 0, gaps=True), Sender("till", 1, 1, gaps=True)
    base = shop.topic.append(0, typed([]), sender=opened).base
    shop.new_process()
    assert shop.hang([7, 8], first) == base
    shop.topic.append(0, typed([7, 8]), sender=first)
    assert values(shop.topic, "id") == [7, 8]
    assert not shop.still_open()


def test_rows_that_hang_in_a_partition_which_a_producer_comes_to_later_are_given_up(shop: Shop) -> None:
    shop.hang([7, 8])
    shop.topic.append(1, typed([5]), sender=FIRST)
    shop.topic.append(0, typed([7, 8]), sender=FIRST)
    assert values(shop.topic, "id") == [7, 8]
    assert values(shop.topic, "id", 1) == [0, 5]


def test_rows_with_and_without_a_stamp_that_hang_together_are_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hanging, "MARGIN", 0.0)
    base = shop.hang([1, 2])
    shop.stamp(FIRST, base, 2)
    shop.hang([7], NEXT)
    with pytest.raises(Unreachable, match=r"frames of producer till with and without a stamp hang in .*orders/0"):
        shop.topic.append(0, typed([3]), sender=NEXT)
    assert values(shop.topic, "id") == []


def test_a_stamp_that_hangs_is_committed_where_its_rows_are(shop: Shop) -> None:
    base = shop.topic.append(0, typed([1, 2]), sender=FIRST).base
    second = shop.topic.append(0, typed([3]), sender=NEXT).base
    forget = stamp_of(shop.topic.id, 0, FIRST.id)
    known = Producers()
    known.remember(placed(base, 2, FIRST))
    produce_one(shop.settings, NAME, forget.partition, known.encode(), forget.key)
    shop.new_process()
    shop.stamp(NEXT, second, 1, open=True)
    assert shop.topic.append(0, typed([3]), sender=NEXT) == Appended(second, 1, duplicate=True)
    assert values(shop.topic, "id") == [1, 2, 3]
    assert not shop.still_open()


@pytest.mark.parametrize("rows", [True, False])
def test_a_stamp_that_hangs_is_given_up_where_its_rows_are_not(rows: bool, shop: Shop) -> None:
    shop.topic.append(0, typed([1, 2]), sender=FIRST)
    shop.new_process()
    base = shop.hang([7], NEXT) if rows else shop.topic.ends()[0].next
    shop.stamp(NEXT, base, 1, open=True)
    shop.topic.append(0, typed([3]), sender=NEXT)
    assert values(shop.topic, "id") == [1, 2, 3]
    assert shop.topic.senders(0)["till"][:3] == NEXT[:3]


def test_a_stamp_that_hangs_holds_nobody_up_who_asks_how_far_a_producer_has_come(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hanging, "MARGIN", 0.0)
    shop.topic.append(0, typed([1, 2]), sender=FIRST)
    shop.new_process()
    shop.stamp(NEXT, shop.topic.ends()[0].next, 1, open=True)
    assert shop.topic.senders(0)["till"][:3] == FIRST[:3]
    shop.new_process()
    with pytest.raises(SequenceGap):
        shop.topic.append(0, typed([3]), sender=Sender("till", 0, 2))


def test_an_epoch_that_hangs_in_one_partition_and_is_there_in_another_is_committed(shop: Shop) -> None:
    shop.topic.append(1, typed([5]), sender=FIRST)
    shop.new_process()
    base = shop.hang([1, 2])
    shop.stamp(FIRST, base, 2, open=True)
    shop.topic.append_together([Part(0, typed([1, 2])), Part(1, typed([5]))], FIRST)
    assert (values(shop.topic, "id"), values(shop.topic, "id", 1)) == ([1, 2], [0, 5])
    assert not shop.still_open()


def test_a_stamp_of_somebody_else_that_hangs_holds_nobody_up(shop: Shop) -> None:
    key, number = stamp_of(shop.topic.id, 0, FIRST.id)
    left_open(shop.broker, "else", NAME, number, [(b"else/0/" + key, b"[]", [])])
    try:
        shop.topic.append(0, typed([1]), sender=FIRST)
        shop.new_process()
        shop.topic.append(1, typed([2]), sender=FIRST)
        assert (values(shop.topic, "id"), values(shop.topic, "id", 1)) == ([1], [0, 2])
    finally:
        deliver(shop.settings, "else", Ending((NAME, number)))


class Ending:
    """Gives up what a transactional id has left open."""

    def __init__(self, place: tuple[str, int]) -> None:
        self.place = place

    def known(self) -> bool:
        return False

    def find(self, transaction: KafkaTransactions, new: bool) -> bool:
        transaction.end([self.place], commit=False)
        return True

    def write(self, transaction: KafkaTransactions) -> bool:
        return True

    def seen(self, transaction: KafkaTransactions) -> None: ...


def test_what_the_broker_does_not_show_after_a_commit_is_committed_once_more(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an abort of the next transaction would give up with it what was acknowledged."""
    ended: list[tuple[list[tuple[str, int]], bool]] = []
    end = KafkaTransactions.end
    monkeypatch.setattr(writing, "still_unseen", lambda settings, wanted, seconds: wanted)
    monkeypatch.setattr(
        KafkaTransactions, "end", lambda self, places, *, commit: (ended.append((places, commit)), end(self, places, commit=commit))
    )
    shop.topic.append(0, typed([1, 2]), sender=FIRST)
    stamp = (NAME, stamp_of(shop.topic.id, 0, FIRST.id).partition)
    assert ended[-1] == ([(shop.name, 0), stamp], True)
    assert values(shop.topic, "id") == [1, 2]


def test_a_topic_made_again_under_its_name_knows_nothing_of_the_frames_of_the_old_one(shop: Shop) -> None:
    shop.topic.append(0, typed([1]), sender=FIRST)
    log = KafkaLog(shop.settings)
    log.delete("orders")
    assert until(lambda: "orders" not in log.topics())
    again = log.create(TopicSpec("orders", 2, SCHEMA, "at"))
    assert not again.append(0, typed([1]), sender=FIRST).duplicate
    assert values(again, "id") == [1]


def test_rows_that_a_process_left_hanging_without_a_name_are_given_up_before_it_writes_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids: list[str] = []
    monkeypatch.setattr(writing, "deliver", lambda settings, id, *more: (ids.append(id), deliver(settings, id, *more))[1])
    shop.topic.append(0, typed([1, 2]))
    shop.hang([3, 4], None, id=ids[0])  # as far as an append came whose broker was killed; this process tries again
    shop.topic.append(0, typed([3, 4]))
    assert values(shop.topic, "id") == [1, 2, 3, 4]
