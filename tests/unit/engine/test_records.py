"""What stays of an epoch after its decision is swept."""

from penstock import Flow, Tumbling, agg
from penstock.engine.run.epoch.decision import Decision, EngineMark
from penstock.engine.run.epoch.history import keep_marks, kept_marks, records, telling
from penstock.engine.run.epoch.sweep import KEEP
from penstock.storage.memory import MemoryStorage


def a_flow() -> Flow:
    flow = Flow("counts")
    clicks = flow.stream("clicks", "page string, at timestamp", time="at", lateness="1 second")
    clicks.window(Tumbling("1 minute"), by="page").agg(n=agg.count()).view("counts")
    return flow


def test_every_epoch_leaves_a_record_with_the_time_of_each_step() -> None:
    with a_flow().test() as t:
        for minute in range(3):
            t.send("clicks", {"page": "/", "at": f"2024-01-15T10:0{minute}:00"})
            t.epoch()
        found = list(records(t.driver.context.storage))
        assert [r["epoch"] for r in found] == [0, 1, 2]
        assert [r["rows"] for r in found] == [1, 1, 1]
        assert {"open", "run", "decide", "deliver", "sweep"} <= found[0]["steps"].keys()


def test_a_record_that_a_crash_tore_spoils_no_other() -> None:
    with a_flow().test() as t:
        t.send("clicks", {"page": "/", "at": "2024-01-15T10:00:00"})
        t.epoch()
        storage = t.driver.context.storage
        torn = storage.append("records/00000000.jsonl")
        torn.write(b'\n{"epoch": 1, "ro')
        torn.close()
        t.send("clicks", {"page": "/", "at": "2024-01-15T10:01:00"})
        t.epoch()
        assert [r["epoch"] for r in records(storage)] == [0, 1]


def test_marks_outlive_the_decisions_they_were_made_in() -> None:
    with a_flow().test() as t:
        t.topic("clicks", partitions=2)
        for second in range(KEEP + 10):
            t.send("clicks", {"page": "/", "at": f"2024-01-15T10:00:{second:02d}"}, partition=0)
            t.epoch()
        decisions = t.driver.decisions
        swept = kept_marks(t.driver.context.storage)
        kept = {m for epoch in decisions.epochs() for m in decisions.read(epoch).marks}
        assert decisions.epochs()[0] > 0
        assert {m.partition for m in swept | kept} == {1}  # the empty partition was excused in every epoch but the first
        assert len(swept | kept) >= KEEP + 8
        assert all(isinstance(m, EngineMark) and m.offset == 0 for m in swept)


def test_marks_are_brought_together_and_those_that_say_nothing_go() -> None:
    storage = MemoryStorage()
    told = [EngineMark("orders", 0, 5, time) for time in range(2_500)] + [
        EngineMark("orders", 0, 9, 100),
        EngineMark("orders", 1, 0, 7),
    ]
    for epoch, mark in enumerate(told):
        keep_marks(storage, Decision("clicks", "a", 1, epoch, 0, "", 1, {}, {}, (mark,), {}, (), (), {}))
    kept = kept_marks(storage)
    assert telling(kept) == [EngineMark("orders", 1, 0, 7), EngineMark("orders", 0, 5, 2_499)]
    assert len(kept) < 600
    assert len(storage.list("marks")) == 1


def test_marks_of_answers_say_nothing_of_other_marks() -> None:
    marks = [EngineMark("users", 0, 2, 9), EngineMark("users", 0, 3, 5, "enriched"), EngineMark("users", 0, 4, 5, "enriched")]
    assert telling(marks) == marks[:2]
