"""1. Open: what an epoch reads, which marks the engine puts, which frontier may be used."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from penstock import Flow, Tumbling, agg
from penstock.core.schema import Schema
from penstock.core.time import FOREVER, NEVER, FixedClock
from penstock.engine.execute.program import Program, lower
from penstock.engine.run.epoch.decision import Decision, EngineMark, PartitionState
from penstock.engine.run.epoch.open import TICK, EpochRequest, Opened, learned, open_epoch, spread
from penstock.engine.state.refs import RunRef
from penstock.errors import Mismatch, OffsetGone
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.log.memory import MemoryLog
from penstock.log.port import End, TopicSpec

COLUMNS = "key string, at timestamp"
LATENESS, IDLE = 10, 50


class Bench:
    """A flow over one topic, opened epoch after epoch without running any."""

    def __init__(self, partitions: int, *, own_time: bool = True, **stream: Any) -> None:
        self.clock = FixedClock(1_000)
        self.log = MemoryLog(self.clock)
        self.create(partitions, own_time)
        self.flow = Flow("shop")
        settings = {"time": "at", "lateness": f"{LATENESS} us", "idle": f"{IDLE} us", **stream}
        rows = self.flow.stream("orders", COLUMNS, **settings)
        rows.window(Tumbling("100 us"), by="key").agg(n=agg.count(), name="sales").view("sales")
        self.last: Decision | None = None
        self.runs: tuple[RunRef, ...] = (RunRef("sales", 0, "panes", 0, 0, "", 0, 1),)  # a window waits

    def create(self, partitions: int, own_time: bool = True) -> None:
        self.topic = self.log.create(TopicSpec("orders", partitions, Schema.of(COLUMNS), "at" if own_time else None))

    @property
    def program(self) -> Program:
        return lower(resolve(self.flow, NoAnalyzer()), {"orders": self.log.topic("orders")})

    def append(self, partition: int, *times: int) -> None:
        columns = [pa.array(["k"] * len(times)), pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))]
        self.topic.append(partition, pa.record_batch(columns, schema=Schema.of(COLUMNS).arrow))

    def open(self, **request: Any) -> Opened:
        return open_epoch(self.program, self.log, self.last, self.clock.now(), EpochRequest(**request))

    def decide(self, times: Mapping[tuple[str, int], int] | None = None, **request: Any) -> Opened:
        opened = self.open(**request)
        sources = learned(opened, self.program, times or {}, {})
        self.last = Decision(
            "shop", "", 1, opened.epoch, opened.clock, "", 1, sources, {}, opened.marks, dict(opened.frontiers), self.runs, (), {}
        )
        return opened


def ranges(opened: Opened) -> dict[int, tuple[int, int]]:
    return {r.partition: (r.start, r.stop) for r in opened.ranges}


def test_an_epoch_reads_what_is_there_and_the_next_goes_on_from_it() -> None:
    bench = Bench(1)
    bench.append(0, 100, 120)
    first = bench.decide()
    assert (first.epoch, ranges(first), first.rows, first.behind) == (0, {0: (0, 2)}, 2, 0)
    bench.append(0, 130)
    second = bench.decide()
    assert (second.epoch, ranges(second)) == (1, {0: (2, 3)})
    assert bench.decide().ranges == ()


def test_the_row_budget_goes_to_the_lowest_watermark_first() -> None:
    bench = Bench(2)
    for time in (100, 200, 300):
        bench.append(0, time)
        bench.append(1, time + 1_000)
    bench.decide(rows=2)
    assert ranges(bench.decide(rows=2)) == {0: (1, 3)}, "partition 1 is far ahead already"
    opened = bench.open(rows=2)
    assert ranges(opened) == {1: (1, 3)}
    assert opened.behind == 0


def test_a_frame_is_read_whole_though_it_exceeds_the_budget_and_what_is_left_is_told() -> None:
    bench = Bench(1)
    bench.append(0, 1, 2, 3, 4, 5)
    bench.append(0, 6, 7)
    opened = bench.open(rows=1)
    assert ranges(opened) == {0: (0, 5)}
    assert opened.behind == 2


def test_a_cut_within_a_frame_knows_only_the_time_before_that_frame() -> None:
    bench = Bench(1)
    bench.append(0, 100)
    bench.append(0, 200, 300)
    opened = bench.decide(cut=lambda source, partition, there: 2)
    assert ranges(opened) == {0: (0, 2)}
    assert opened.sources["orders"].partitions[0].watermark == 100 - LATENESS
    assert bench.open().sources["orders"].partitions[0].watermark == 300 - LATENESS


def test_catch_up_reads_to_the_ends_found_at_the_start() -> None:
    bench = Bench(1)
    bench.append(0, 100, 101, 102)
    assert ranges(bench.open(stops={("orders", 0): 2})) == {0: (0, 2)}
    bench.decide()
    assert bench.open(stops={("orders", 0): 2}).ranges == (), "it never goes back"


def test_the_frontier_is_known_from_frame_headers_where_they_have_the_time() -> None:
    bench = Bench(1)
    bench.append(0, 100, 300, 200)
    assert bench.open().frontiers["sales"] == 300 - LATENESS


def test_without_headers_the_frontier_is_that_of_the_epoch_before() -> None:
    bench = Bench(1, own_time=False)
    bench.append(0, 100, 300)
    assert bench.decide({("orders", 0): 300}).frontiers["sales"] == NEVER
    assert bench.open().frontiers["sales"] == 300 - LATENESS


def test_what_was_learned_never_goes_back() -> None:
    bench = Bench(1, own_time=False)
    bench.append(0, 300)
    bench.decide({("orders", 0): 300})
    bench.append(0, 50)
    bench.decide({("orders", 0): 50})
    assert bench.last
    assert bench.last.sources["orders"].partitions[0] == PartitionState(2, 300 - LATENESS, NEVER, 300)


def test_a_partition_first_seen_is_marked_with_the_frontier_already_used() -> None:
    bench = Bench(2)
    both = bench.topic.ends
    bench.topic.ends = lambda: {0: both()[0]}  # type: ignore[method-assign]
    bench.append(0, 500)
    bench.append(1, 20)
    bench.decide()
    bench.topic.ends = both  # type: ignore[method-assign]
    opened = bench.open()
    assert opened.marks == (EngineMark("orders", 1, 0, 500 - LATENESS),)
    assert [(r.partition, r.floor) for r in opened.ranges] == [(1, 500 - LATENESS)]


def test_a_partition_first_seen_before_any_frontier_gets_no_mark() -> None:
    bench = Bench(2)
    bench.append(0, 500)
    bench.append(1, 20)
    assert bench.open().marks == ()


def test_an_empty_partition_holds_nobody_back() -> None:
    bench = Bench(2)
    bench.append(0, 500)
    bench.decide()
    opened = bench.open()
    assert opened.marks == (EngineMark("orders", 1, 0, 500 - LATENESS),)
    assert opened.frontiers["sales"] == 500 - LATENESS


def test_when_all_are_empty_nobody_is_marked() -> None:
    assert Bench(3).open().marks == ()


def test_an_idle_partition_is_excused_at_the_next_offset_once_its_time_is_over() -> None:
    bench = Bench(2)
    bench.append(0, 100)
    bench.append(1, 100)
    bench.decide()
    bench.clock.set(1_000 + IDLE)
    bench.append(0, 500)
    bench.decide()
    assert bench.open().marks == (), "not yet longer than idle"
    bench.clock.set(1_000 + IDLE + 1)
    assert bench.open().marks == (EngineMark("orders", 1, 1, 500 - LATENESS),)


def test_a_partition_with_unread_rows_is_not_idle() -> None:
    bench = Bench(2)
    bench.append(0, 100)
    bench.append(1, 100)
    bench.clock.set(10_000)
    bench.append(0, 500)
    bench.decide(cut=lambda source, partition, there: there if partition == 0 else 0)
    assert bench.open(cut=lambda *_: 0).marks == ()


def test_a_mark_that_says_nothing_new_is_not_put() -> None:
    bench = Bench(2)
    bench.append(0, 500)
    bench.decide()
    assert bench.decide().marks
    assert bench.decide().marks == ()


def test_the_end_marks_every_partition_for_ever() -> None:
    bench = Bench(2)
    bench.append(0, 500)
    opened = bench.decide(end=True)
    assert {(m.partition, m.time) for m in opened.marks} == {(0, FOREVER), (1, FOREVER)}
    assert opened.frontiers["sales"] == FOREVER
    assert bench.open(end=True).marks == ()


def test_a_producers_mark_moves_the_frontier_without_rows() -> None:
    bench = Bench(1)
    bench.append(0, 100)
    bench.decide()
    bench.topic.append(0, None, mark=700)
    opened = bench.open()
    assert (opened.rows, opened.frontiers["sales"]) == (0, 700)


def test_a_topic_that_is_not_there_yet_is_waited_for() -> None:
    bench = Bench(1)
    bench.log.delete("orders")
    program = lower(resolve(bench.flow, NoAnalyzer()), {"orders": None})
    opened = open_epoch(program, bench.log, None, 0, EpochRequest())
    assert (opened.ranges, opened.frontiers["sales"]) == ((), NEVER)


def test_a_topic_that_was_made_again_is_refused() -> None:
    bench = Bench(1)
    bench.append(0, 100)
    bench.decide()
    bench.log.delete("orders")
    with pytest.raises(Mismatch, match="is gone"):
        open_epoch(lower(resolve(bench.flow, NoAnalyzer()), {"orders": None}), bench.log, bench.last, 0, EpochRequest())
    bench.create(1)
    with pytest.raises(Mismatch, match="deleted and made again"):
        bench.open()


def test_offsets_that_were_removed_unread_are_a_loud_stop() -> None:
    bench = Bench(1)
    bench.append(0, 100, 200)
    bench.decide()
    bench.topic.ends = lambda: {0: End(first=5, next=9)}  # type: ignore[method-assign]
    with pytest.raises(OffsetGone, match="offsets 2 to 4 of orders/0"):
        bench.open()


def test_a_gap_that_is_accepted_is_counted_once_and_what_lies_behind_it_is_read() -> None:
    bench = Bench(2)
    bench.append(0, 100, 200)
    bench.append(1, 100)
    bench.decide()
    bench.append(0, *range(200, 207))
    real = bench.topic.ends()
    bench.topic.ends = lambda: {0: real[0]._replace(first=5), 1: real[1]}  # type: ignore[method-assign]
    opened = bench.decide(accept_gap=True)
    assert (ranges(opened), dict(opened.gone)) == ({0: (5, 9)}, {"orders": 3})
    assert dict(bench.decide(accept_gap=True).gone) == {}


def frames(bench: Bench, partition: int, sizes: Sequence[int]) -> None:
    for size in sizes:
        bench.append(partition, *range(size))


def test_a_long_range_is_spread_over_tasks_at_frames() -> None:
    bench = Bench(1)
    frames(bench, 0, [10] * 10)
    pieces = spread(bench.open(), bench.program, 4)
    assert [(p.start, p.stop) for p in pieces] == [(0, 30), (30, 60), (60, 90), (90, 100)]


def test_spread_pieces_are_the_range_whatever_the_frames() -> None:
    bench = Bench(2)
    frames(bench, 0, [1, 50, 3, 3, 40, 2])
    frames(bench, 1, [7])
    opened = bench.open()
    for tasks in range(1, 9):
        pieces = [p for p in spread(opened, bench.program, tasks) if p.partition == 0]
        assert [p.start for p in pieces] == [0, *(p.stop for p in pieces[:-1])]
        assert pieces[-1].stop == 99


def test_without_headers_a_partition_is_read_by_one_task() -> None:
    bench = Bench(1, own_time=False)
    frames(bench, 0, [10] * 10)
    assert spread(bench.open(), bench.program, 4) == bench.open().ranges


def test_a_mark_in_the_range_is_known_also_without_headers() -> None:
    bench = Bench(1, own_time=False)
    bench.append(0, 100)
    bench.topic.append(0, None, mark=700)
    assert bench.open().frontiers["sales"] == 700


def test_append_times_are_known_from_frames_whatever_the_topics_time() -> None:
    bench = Bench(1, time="append", lateness=None)
    bench.append(0, 5, 900)
    bench.clock.set(3_000)
    bench.append(0, 7)
    assert bench.open().frontiers["sales"] == 3_000
    bench.clock.set(4_000)
    bench.topic.append(0, None, mark=20)
    assert bench.open().frontiers["sales"] == 3_000, "a frame without rows has no row's time"


def test_append_times_are_spread_over_tasks_with_the_time_before_each_piece() -> None:
    bench = Bench(1, time="append", lateness=None)
    for n in range(10):
        bench.clock.set(1_000 + n)
        frames(bench, 0, [10])
    pieces = spread(bench.open(), bench.program, 4)
    assert [(p.start, p.stop, p.time) for p in pieces] == [(0, 30, NEVER), (30, 60, 1_002), (60, 90, 1_005), (90, 100, 1_008)]


DELAY = 100


def delayed(partitions: int = 2, **stream: Any) -> Bench:
    bench = Bench(partitions, delay=f"{DELAY} us", **stream)
    bench.clock.set(5_000)
    return bench


@pytest.mark.parametrize("own_time", [True, False])
def test_a_stream_read_to_its_end_has_come_to_the_clock_less_its_delay(own_time: bool) -> None:
    bench = delayed(own_time=own_time)
    bench.append(0, 100, 200)
    opened = bench.open()
    assert opened.marks == (EngineMark("orders", 0, 2, 5_000 - DELAY), EngineMark("orders", 1, 0, 5_000 - DELAY))
    assert [(r.partition, r.floor) for r in opened.ranges] == [(0, NEVER)], "its rows stand before the mark"
    assert opened.frontiers["sales"] == 5_000 - DELAY


def test_a_stream_that_is_behind_gets_no_such_mark() -> None:
    bench = delayed()
    for time in (100, 200):
        bench.append(0, time)
    assert bench.open(rows=1).marks == ()
    assert bench.open(stops={("orders", 0): 1, ("orders", 1): 0}).marks == ()
    assert bench.open(cut=lambda *_: 1).marks == ()


def test_a_partition_that_has_come_further_needs_no_such_mark() -> None:
    bench = delayed()
    bench.append(0, 6_000)
    assert bench.open().marks == (EngineMark("orders", 1, 0, 5_000 - DELAY),)


def test_time_alone_brings_marks_along_now_and_then_while_a_window_waits() -> None:
    bench = delayed(1)
    bench.append(0, 100)
    bench.decide()
    bench.clock.set(5_000 + TICK - 1)
    assert bench.open().marks == ()
    assert [m.time for m in bench.open(tick=0).marks] == [5_000 + TICK - 1 - DELAY]
    bench.clock.set(5_000 + TICK)
    assert [m.time for m in bench.open().marks] == [5_000 + TICK - DELAY]
    assert bench.open(stops={("orders", 0): 1}).marks == (), "a bounded run would never end"
    assert [m.time for m in bench.open(end=True).marks] == [FOREVER]
    bench.append(0, 100)
    assert bench.open(stops={("orders", 0): 2}).marks, "with rows it counts there too"
    bench.runs = ()
    bench.decide()
    bench.clock.set(5_000 + 3 * TICK)
    assert bench.open().marks == (), "nothing can come of it"


# tables


class TableBench(Bench):
    """A stream enriched with a table; both are opened, and nothing is run."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(partitions)
        self.users = self.log.create(TopicSpec("users", 2, Schema.of(COLUMNS), "at", "key"))
        self.flow = Flow("shop")
        users = self.flow.table("users", COLUMNS, key="key", time="at")
        settings = {"time": "at", "lateness": f"{LATENESS} us", "idle": f"{IDLE} us"}
        rows = self.flow.stream("orders", COLUMNS, **settings).enrich(users, on="key")  # type: ignore[arg-type]
        rows.window(Tumbling("100 us"), by="key").agg(n=agg.count(), name="sales").view("sales")

    @property
    def program(self) -> Program:
        return lower(resolve(self.flow, NoAnalyzer()), {"orders": self.log.topic("orders"), "users": self.users})

    def change(self, partition: int, *times: int) -> None:
        columns = [pa.array(["k"] * len(times)), pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))]
        self.users.append(partition, pa.record_batch(columns, schema=Schema.of(COLUMNS).arrow))


def read_of(opened: Opened, step: str) -> dict[int, tuple[int, int]]:
    return {r.partition: (r.start, r.stop) for r in opened.ranges if r.step == step}


def test_a_table_is_read_to_its_end_before_any_row_of_a_stream() -> None:
    bench = TableBench()
    for time in (100, 200, 300):
        bench.append(0, time)
        bench.change(0, time + 5_000)
        bench.change(1, time + 9_000)
    first = bench.decide(rows=4)
    assert (read_of(first, "users"), read_of(first, "orders")) == ({0: (0, 3), 1: (0, 1)}, {})
    second = bench.decide(rows=4)
    assert (read_of(second, "users"), read_of(second, "orders")) == ({1: (1, 3)}, {0: (0, 2)})
    bench.change(0, 1)
    third = bench.decide(rows=1)
    assert (read_of(third, "users"), read_of(third, "orders")) == ({0: (3, 4)}, {}), "also while the flow goes on"
    assert read_of(bench.decide(rows=1), "orders") == {0: (2, 3)}


def test_in_a_catch_up_streams_wait_for_the_ends_of_tables_that_were_found() -> None:
    bench = TableBench()
    bench.append(0, 100, 101)
    for time in (1, 2, 3):
        bench.change(0, time)
    stops = {("users", 0): 2, ("users", 1): 0, ("orders", 0): 2}
    first = bench.decide(rows=2, stops=stops)
    assert (read_of(first, "users"), read_of(first, "orders")) == ({0: (0, 2)}, {})
    second = bench.decide(rows=2, stops=stops)
    assert (read_of(second, "users"), read_of(second, "orders")) == ({}, {0: (0, 2)})


def test_a_table_holds_no_time_back_and_is_never_excused() -> None:
    bench = TableBench()
    bench.change(0, 5)
    bench.append(0, 300)
    bench.clock.set(10_000_000)  # everything is idle by now
    opened = bench.decide()
    assert [m for m in opened.marks if m.source == "users"] == []
    assert {p.watermark for p in opened.sources["users"].partitions.values()} == {NEVER}
    assert opened.frontiers["sales"] == 300 - LATENESS


def test_no_row_of_a_table_moves_its_watermark_but_a_mark_does() -> None:
    bench = TableBench()
    bench.change(0, 500)
    assert bench.decide().sources["users"].partitions[0].watermark == NEVER
    bench.users.append(0, None, mark=700)
    assert bench.decide().sources["users"].partitions[0].watermark == 700


def test_the_end_of_input_ends_tables_too() -> None:
    bench = TableBench()
    bench.change(0, 1)
    bench.append(0, 100)
    opened = bench.decide(end=True)
    assert {state.used for state in opened.sources.values()} == {FOREVER}
