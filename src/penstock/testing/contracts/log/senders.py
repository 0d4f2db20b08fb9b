"""What every log must pass on producers and on schemas that grow: a part of `LogContract`."""

import pyarrow as pa
import pytest

from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.errors import BadInput, BadSchema, BadTime, Fenced, SequenceGap
from penstock.log.intake.rows_in import Intake
from penstock.log.port import Appended, Log, Sender, Topic, TopicSpec
from penstock.testing.contracts.log.samples import DAY, NOW, RAW, SCHEMA, TYPED, frames_of, rows_of, typed, values


class SenderContract:
    """Retries are stored once; a schema may only grow. Needs the fixtures `log` and `topic`."""

    dense: bool

    def test_a_retry_returns_the_first_offset(self, topic: Topic) -> None:
        first = [topic.append(0, typed([n, n]), sender=Sender("p", 0, n)).base for n in range(40)]
        assert first == (list(range(0, 80, 2)) if self.dense else sorted(set(first)))
        for sequence in (39, 38, 20, 0):
            answer = topic.append(0, typed([sequence, sequence]), sender=Sender("p", 0, sequence))
            assert answer == Appended(first[sequence], 2, True)
        assert values(topic, "id") == [n // 2 for n in range(80)]

    def test_a_gap_is_an_error(self, topic: Topic) -> None:
        topic.append(0, typed([1]), sender=Sender("p", 0, 5))
        with pytest.raises(SequenceGap, match="6 is next"):
            topic.append(0, typed([2]), sender=Sender("p", 0, 7))
        with pytest.raises(SequenceGap, match="does not hold it"):
            topic.append(0, typed([2]), sender=Sender("p", 0, 4))
        answer = topic.append(0, typed([2]), sender=Sender("p", 0, 6))
        assert not answer.duplicate
        assert answer.base == 1 if self.dense else answer.base > 0
        assert values(topic, "id") == [1, 2]

    def test_a_sender_that_may_skip_numbers_is_still_heard_once(self, topic: Topic) -> None:
        first = {n: topic.append(0, typed([n]), sender=Sender("p", 0, n, gaps=True)).base for n in (0, 3, 10)}
        assert topic.append(0, typed([3]), sender=Sender("p", 0, 3, gaps=True)) == Appended(first[3], 1, True)
        with pytest.raises(SequenceGap):
            topic.append(0, typed([5]), sender=Sender("p", 0, 5, gaps=True))
        assert values(topic, "id") == [0, 3, 10]

    def test_an_old_epoch_is_fenced_and_a_new_one_starts_anywhere(self, topic: Topic) -> None:
        topic.append(0, typed([1]), sender=Sender("p", 1, 8))
        topic.append(0, typed([2]), sender=Sender("p", 2, 0))
        with pytest.raises(Fenced, match="was replaced"):
            topic.append(0, typed([3]), sender=Sender("p", 1, 9))
        assert topic.append(0, typed([2]), sender=Sender("p", 2, 0)).duplicate
        assert values(topic, "id") == [1, 2]

    def test_a_sender_that_may_skip_numbers_begins_no_epoch_with_a_lower_one(self, topic: Topic) -> None:
        topic.append(0, typed([1]), sender=Sender("p", 1, 8, gaps=True))
        with pytest.raises(SequenceGap, match="begins epoch 2 at 7, but its last is 8"):
            topic.append(0, typed([], 0), sender=Sender("p", 2, 7, gaps=True))
        assert topic.senders(0)["p"][:3] == ("p", 1, 8)
        topic.append(0, typed([], 0), sender=Sender("p", 2, 8, gaps=True))
        assert topic.senders(0)["p"][:3] == ("p", 2, 8)
        assert values(topic, "id") == [1]

    def test_producers_and_partitions_do_not_mix(self, log: Log) -> None:
        topic = log.create(TopicSpec("t", 2, SCHEMA, "at"))
        for partition in (0, 1):
            for name in ("p", "q"):
                assert not topic.append(partition, typed([1]), sender=Sender(name, 0, 0)).duplicate
        assert topic.senders(1) == {"p": Sender("p", 0, 0), "q": Sender("q", 0, 0)}
        if topic.headers:
            assert [f.sender for f in topic.frames(1)] == [Sender("p", 0, 0), Sender("q", 0, 0)]

    def test_the_last_stamp_of_every_producer_is_known(self, log: Log) -> None:
        topic = log.create(TopicSpec("t", 2, SCHEMA, "at"))
        assert topic.senders(0) == {}
        for sequence in range(20):
            topic.append(0, typed([sequence]), sender=Sender("p", 1, sequence))
        topic.append(0, typed([1]), sender=Sender("q", 0, 7, gaps=True))
        topic.append(0, None, mark=NOW, sender=Sender("q", 3, 0))
        topic.append(0, typed([2]))
        assert {id: last[:3] for id, last in topic.senders(0).items()} == {"p": ("p", 1, 19), "q": ("q", 3, 0)}
        assert topic.senders(1) == {}

    def test_a_mark_alone_and_an_empty_batch_are_remembered_too(self, topic: Topic) -> None:
        topic.append(0, None, mark=NOW, sender=Sender("p", 0, 0))
        topic.append(0, typed([]), sender=Sender("p", 0, 1))
        assert topic.append(0, None, mark=NOW, sender=Sender("p", 0, 0)) == Appended(0, 0, True)
        assert topic.append(0, typed([]), sender=Sender("p", 0, 1)).duplicate
        assert [f.mark for f in frames_of(topic) if f.mark > NEVER] == [NOW]
        if topic.headers:
            assert len(topic.frames(0)) == 2

    def test_a_refused_append_uses_no_number(self, topic: Topic) -> None:
        with pytest.raises(BadTime):
            topic.append(0, typed([1]), mark=NOW + 2 * DAY, sender=Sender("p", 0, 0))
        assert topic.append(0, typed([1]), sender=Sender("p", 0, 0)) == Appended(0, 1, False)

    @pytest.mark.parametrize(
        "sender", [Sender("", 0, 0), Sender("x" * 600, 0, 0), Sender("a\0b", 0, 0), Sender("p", -1, 0), Sender("p", 0, -1)]
    )
    def test_an_impossible_sender_is_refused(self, topic: Topic, sender: Sender) -> None:
        with pytest.raises(BadInput):
            topic.append(0, typed([1]), sender=sender)

    def test_rows_that_were_checked_are_stored_like_those_that_are_checked_on_the_way(self, log: Log, topic: Topic) -> None:
        checked = Intake(topic.spec).table(pa.Table.from_batches([typed([1, 2])])).rows
        topic.append(0, typed([1, 2]))
        assert topic.append(0, checked).rows == 2
        assert rows_of(topic)[:2] == rows_of(topic)[2:]

    def test_rows_that_were_checked_before_a_column_was_added_are_checked_again(self, log: Log, topic: Topic) -> None:
        checked = Intake(topic.spec).table(pa.Table.from_batches([typed([1, 2])])).rows
        newer = log.evolve("orders", Schema.of(SCHEMA.ddl() + ", extra double"))
        newer.append(0, checked)
        assert values(newer, "extra") == [None, None]

    def test_a_column_that_was_added_is_null_in_older_rows(self, log: Log, topic: Topic) -> None:
        topic.append(0, typed([1]))
        wider = Schema.of(SCHEMA.ddl() + ", extra double")
        newer = log.evolve("orders", wider)
        assert newer.spec.schema == wider
        newer.append(0, typed([2], extra=pa.array([0.5])))
        newer.append(0, typed([3]))
        assert values(log.topic("orders"), "extra") == [None, 0.5, None]
        assert rows_of(newer, columns=["extra"]) == [{"extra": None}, {"extra": 0.5}, {"extra": None}]

    def test_a_topic_opened_before_learns_of_the_column(self, log: Log, topic: Topic) -> None:
        newer = log.evolve("orders", Schema.of(SCHEMA.ddl() + ", extra double"))
        newer.append(0, typed([1], extra=pa.array([1.0])))
        topic.append(0, typed([2], extra=pa.array([2.0])))
        assert values(topic, "extra") == [1.0, 2.0]

    def test_a_reader_opened_before_reads_rows_with_the_column(self, log: Log, topic: Topic) -> None:
        newer = log.evolve("orders", Schema.of(SCHEMA.ddl() + ", extra double"))
        newer.append(0, typed([1], extra=pa.array([1.0])))
        assert values(topic, "id") == [1]

    def test_any_other_change_of_schema_is_refused_with_the_reason(self, log: Log, topic: Topic) -> None:
        for ddl in (
            "id long",
            "id string, text string, at timestamp",
            SCHEMA.ddl() + ", extra long not null",
            "x long, " + SCHEMA.ddl(),
        ):
            with pytest.raises(BadSchema, match="cannot change like this"):
                log.evolve("orders", Schema.of(ddl))
        assert log.evolve("orders", SCHEMA).spec == TYPED
        log.create(RAW)
        with pytest.raises(BadSchema, match="raw"):
            log.evolve("raw", SCHEMA)
