"""A plan made ready to run: where the graph is cut, who reads whom, what the frontier of each step is."""

import gc

import pyarrow as pa
import pytest

from penstock import Flow, Schema, TopicSpec, Tumbling, agg
from penstock.core.time import NEVER
from penstock.engine.execute import job
from penstock.engine.execute.program import Place, Program, Reader, lower
from penstock.engine.run.context import FlowContext
from penstock.engine.run.driver import Driver
from penstock.engine.run.epoch.open import EpochRequest
from penstock.errors import BadFlow
from penstock.flow.resolve import resolve
from penstock.flow.stream import Stream
from penstock.log.memory import MemoryLog
from penstock.storage.memory import MemoryStorage

COLUMNS = "key string, val long, at timestamp"
SECOND = 1_000_000


class Strings:
    """Stands for Spark's analysis: what only Spark evaluates gives text, or a truth where one is needed."""

    def type_of(self, sql: str, schema: Schema) -> pa.DataType:
        return pa.bool_() if "like" in sql else pa.string()


def stream(flow: Flow, topic: str = "orders") -> Stream:
    return flow.stream(topic, COLUMNS, time="at", lateness="1 second")


def program(flow: Flow) -> Program:
    return lower(resolve(flow, Strings()), {})


def places(flow: Flow) -> dict[str, Place]:
    return dict(program(flow).places)


def test_a_keyed_step_lies_one_level_behind_its_inputs() -> None:
    flow = Flow("f")
    big = stream(flow).where("val > 3", name="big")
    pairs = big.join(stream(flow, "others"), on="key", within="5 seconds", name="pairs")
    sums = pairs.window(Tumbling("1 minute"), by="key").agg(n=agg.count(), name="sums")
    sums.where("n > 1", name="many").view("out")
    found = places(flow)
    assert [found[n].level for n in ("orders", "big", "others", "pairs", "sums", "many")] == [0, 0, 0, 1, 2, 2]
    assert {p.segment for p in found.values()} == {0}
    made = program(flow)
    assert (made.segments, made.depth(0), made.keyed(0, 1), made.keyed(0, 2)) == (1, 2, ["pairs"], ["sums"])


def test_a_step_that_only_spark_evaluates_starts_the_next_segment() -> None:
    flow = Flow("f")
    upper = stream(flow).where("soundex(key) like 'A%'", name="sounds")
    sums = upper.window(Tumbling("1 minute"), by="key").agg(n=agg.count(), name="sums")
    sums.select("key", text="soundex(key)").named("texts").view("out", key="key")
    found = places(flow)
    assert found["orders"] == Place(0, 0)
    assert (found["sounds"], found["sums"], found["texts"]) == (Place(1, 0), Place(1, 1), Place(2, 0))
    assert program(flow).readers["orders"] == (Reader("sql", "sounds"),)


def test_late_rows_come_out_where_their_step_judges() -> None:
    flow = Flow("f")
    sums = stream(flow).window(Tumbling("1 minute"), by="key").agg(n=agg.count(), name="sums")
    sums.view("out")
    sums.late.view("late")
    made = program(flow)
    (late,) = [s.name for s in made.plan.steps if s.name not in ("orders", "sums")]
    assert made.places[late] == Place(0, 0)
    assert made.frontiers({"orders": 7})[late] == 7
    assert made.late_sink == frozenset(), "they have a reader of their own"


def test_diverted_rows_that_nobody_reads_go_to_the_flows_own_topic() -> None:
    flow = Flow("f")
    stream(flow).window(Tumbling("1 minute"), by="key").agg(n=agg.count(), name="kept").view("a")
    stream(flow).window(Tumbling("1 hour"), by="key", late="ignore").agg(n=agg.count(), name="ignored").view("b")
    assert program(flow).late_sink == {"kept"}


def test_the_frontier_of_a_step_is_that_of_its_slowest_input() -> None:
    flow = Flow("f")
    pairs = stream(flow).join(stream(flow, "others"), on="key", within=("-5 seconds", "3 seconds"), how="left", name="pairs")
    pairs.view("out")
    made = program(flow)
    assert made.frontiers({"orders": 100 * SECOND, "others": 80 * SECOND})["pairs"] == 77 * SECOND
    assert made.frontiers({"orders": 100 * SECOND, "others": NEVER})["pairs"] <= NEVER


def fingerprint(size: str = "1 minute", where: str = "val > 3", **settings: str) -> str:
    flow = Flow("f")
    rows = flow.stream("orders", COLUMNS, time="at", **{"lateness": "1 second", **settings}).where(where, name="big")
    rows.window(Tumbling(size), by="key").agg(n=agg.count(), name="sums").view("out")
    return program(flow).fingerprint()


def test_the_fingerprint_changes_with_the_meaning_of_the_steps() -> None:
    assert fingerprint() == fingerprint()
    others = [fingerprint("2 minutes"), fingerprint(where="val > 4"), fingerprint(lateness="2 seconds")]
    assert len({fingerprint(), *others}) == 4


@pytest.mark.parametrize(
    ("columns", "said"),
    [("key string, at timestamp", "has no column 'val'"), ("key string, val string, at timestamp", "has another type")],
)
def test_a_topic_that_does_not_fit_its_stream_is_refused(columns: str, said: str) -> None:
    flow = Flow("f")
    stream(flow).view("out")
    topic = MemoryLog().create(TopicSpec("orders", 1, Schema.of(columns), "at"))
    with pytest.raises(BadFlow, match=said):
        lower(resolve(flow, Strings()), {"orders": topic})


def test_headers_know_the_time_only_where_it_is_the_topics_own() -> None:
    flow = Flow("f")
    stream(flow).view("out")
    plan = resolve(flow, Strings())
    for time, known in (("at", True), (None, False)):
        topic = MemoryLog().create(TopicSpec("orders", 1, Schema.of(COLUMNS), time))
        assert lower(plan, {"orders": topic}).sources["orders"].headers is known
    assert lower(plan, {"orders": None}).sources["orders"].there is False


def test_a_join_leaves_positions_out_where_nobody_reads_them() -> None:
    flow = Flow("f")
    counted = stream(flow).join(stream(flow, "b"), on="key", within="1 minute", name="counted")
    written = stream(flow, "c").join(stream(flow, "d"), on="key", within="1 minute", name="written")
    joined = stream(flow, "e").join(stream(flow, "f"), on="key", within="1 minute", name="joined")
    counted.where("val > 1").window(Tumbling("1 minute"), by="key").agg(n=agg.count()).view("counts")
    written.window(Tumbling("1 minute"), by="key").agg(n=agg.count()).view("others")
    written.to("pairs")
    joined.join(stream(flow, "g"), on="key", within="1 minute", name="again").view("again")
    kernels = program(flow).kernels
    assert {n: kernels[n].gives_position for n in ("counted", "written", "joined", "again")} == {
        "counted": False,
        "written": True,
        "joined": True,
        "again": True,
    }


def test_a_flow_with_an_aggregate_of_its_own_is_the_same_flow_in_the_next_process() -> None:
    def made() -> Program:
        flow = Flow("own")
        product = agg.own("val", init=lambda: 1, add=lambda state, rows: state, merge=lambda a, b: a * b, type="long")
        stream(flow).window(Tumbling("1 minute"), by="key").agg(product=product, name="products").view("products")
        return program(flow)

    first, second = made(), made()
    kept = [p.plan.step("products").node.aggregates[0].options for p in (first, second)]  # type: ignore[union-attr]
    assert kept[0] != kept[1], "the functions are others"
    assert first.fingerprint() == second.fingerprint()


def test_a_packed_program_is_kept_as_long_as_the_program() -> None:
    flow = Flow("f")
    stream(flow).where("val > 3").view("out", key="key")
    made = program(flow)
    assert job._pack(made) is job._pack(made)
    before = len(job._PACKED)
    del made
    gc.collect()
    assert len(job._PACKED) == before - 1


def test_a_flow_that_waits_for_a_topic_is_lowered_once_and_again_when_it_has_come() -> None:
    flow, log = Flow("f"), MemoryLog()
    stream(flow).union(stream(flow, "more")).view("out", key="key")
    log.create(TopicSpec("orders", schema=Schema.of(COLUMNS), time="at"))
    driver = Driver(resolve(flow, Strings()), FlowContext(log, MemoryStorage(), lambda program: []))
    driver.start()
    first = driver.program
    driver.open(EpochRequest())
    assert driver.program is first
    log.create(TopicSpec("more", schema=Schema.of(COLUMNS), time="at"))
    driver.open(EpochRequest())
    assert driver.program.sources["more"].there
    driver.release()
