"""The timeline: what is drawn is what the engine judged."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from penstock import Flow, FlowTest, Tumbling, agg
from penstock.cli.flow.timeline import as_svg
from penstock.core.time import FOREVER, NEVER, instant, micros
from penstock.engine.diagnose.timeline import Item, Stretch, Timeline, source_of, timeline
from penstock.engine.diagnose.trace import marks_of
from penstock.errors import BadInput, NotFound

Start = Callable[..., FlowTest]
PICTURE = Path(__file__).parents[3] / "docs" / "timeline.svg"
PAGES = "page string, at timestamp"


def pages() -> Flow:
    """Page views in windows of five seconds."""
    flow = Flow("pages")
    views = flow.stream("views", PAGES, time="at", lateness="4 seconds")
    views.where("page <> 'bot'").window(Tumbling("5 seconds"), by="page").agg(n=agg.count(), name="per_page").view("per_page")
    return flow


def fill(t: FlowTest) -> None:
    """A watermark of 10:00:10 written into the stream, then a row of 10:00:08."""
    t.clock.set("2024-01-15T10:00:02Z")
    for at, page in (("01", "a"), ("02.5", "b"), ("04", "a"), ("03", "a"), ("07", "b"), ("06", "bot"), ("09.2", "a")):
        send(t, at, page)
    t.clock.advance("1 second")
    t.mark("views", "2024-01-15T10:00:10Z")
    for at in ("08", "11", "12.4", "10.5", "14"):
        send(t, at, "a")
    t.catch_up()


def send(t: FlowTest, at: str, page: str) -> None:
    t.clock.advance("1 second")
    t.send("views", {"page": page, "at": f"2024-01-15T10:00:{at}Z"})


def drawn(t: FlowTest, start: int = 0, stop: int = 12) -> Timeline:
    program = t.driver.program
    spec = source_of(program, None)
    return timeline(program, t.log.topic(spec.topic), spec, Stretch(0, start, stop), marks_of(t.driver.decisions))


def at(clock: str) -> int:
    return micros(instant(f"2024-01-15T10:00:{clock}Z"))


def test_records_and_marks_stand_in_the_order_of_the_log_with_what_became_of_them(flow_test: Start) -> None:
    t = flow_test(pages())
    fill(t)
    line = drawn(t)
    assert (line.topic, line.partition, line.step, line.hidden) == ("views", 0, "per_page", 0)
    assert [item.offset for item in line.items] == [0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 11]
    assert [item.kind for item in line.items[5:9]] == ["filtered", "event", "mark", "late"]
    assert [item.offset for item in line.items if item.kind == "late"] == [row["offset"] for row in t.rows("late")]
    assert line.windows == ((at("00"), at("05")), (at("05"), at("10")), (at("10"), at("15")))


def test_the_watermark_is_what_each_row_leaves_behind(flow_test: Start) -> None:
    t = flow_test(pages())
    fill(t)
    items = drawn(t).items
    assert items[0].before == NEVER
    assert items[0].after == at("01") - 4_000_000
    assert [items[7].after, items[8].before, items[8].after] == [at("10")] * 3
    assert all(a.after == b.before for a, b in pairwise(items))


def test_a_stretch_begins_with_the_watermark_it_had_there(flow_test: Start) -> None:
    t = flow_test(pages())
    fill(t)
    whole, part = drawn(t).items, drawn(t, 5, 9).items
    assert part == tuple(item for item in whole if 5 <= item.offset < 9)


def test_rows_without_a_plausible_time_are_counted_and_not_drawn(flow_test: Start) -> None:
    t = flow_test(pages())
    fill(t)
    t.send("views", {"page": "a", "at": "2033-01-01T00:00:00Z"})
    line = drawn(t, 0, 13)
    assert line.hidden == 1
    assert "1 records are not shown" in as_svg(line)


def test_the_end_of_input_stands_at_the_edge(flow_test: Start) -> None:
    t = flow_test(pages())
    fill(t)
    t.end()
    line = drawn(t)
    assert (line.items[-1].kind, line.items[-1].time) == ("mark", FOREVER)
    assert ">end of input</text>" in as_svg(line)


def test_a_topic_that_is_not_read_or_was_written_by_a_flow_is_refused(flow_test: Start) -> None:
    t = flow_test(pages())
    fill(t)
    with pytest.raises(NotFound, match="reads no topic orders"):
        source_of(t.driver.program, "orders")
    flow = Flow("report")
    flow.stream("views", PAGES).to("copy")
    other = flow_test(flow)
    other.topic("views", writer="pages", time=None)
    with pytest.raises(BadInput, match="a flow wrote it"):
        drawn(other, 0, 0)


def test_the_picture_is_well_formed_and_says_of_each_record_what_it_is(flow_test: Start) -> None:
    t = flow_test(pages())
    fill(t)
    root = ElementTree.fromstring(as_svg(drawn(t)))
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert ("views/0@7 · time 2024-01-15T10:00:08Z · appended 2024-01-15T10:00:11Z · W 2024-01-15T10:00:10Z · late") in titles
    assert sum(title.startswith("views/0@") for title in titles) == 12
    assert "script" not in as_svg(drawn(t))


def test_names_cannot_break_out_of_the_picture() -> None:
    item = Item("event", 0, 0, 0, NEVER, 0)
    root = ElementTree.fromstring(as_svg(Timeline("a<b", 0, 'x"&<script>', (item,), ())))
    assert root.get("aria-label") == 'a<b/0, judged by x"&<script>'


def labels(svg: str) -> list[tuple[float, float, float, float]]:
    """The boxes of all texts: left, right, top, bottom."""
    boxes = []
    for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        x, y, width = float(element.get("x", 0)), float(element.get("y", 0)), 5.6 * len(element.text or "")
        left = {"middle": x - width / 2, "end": x - width}.get(element.get("text-anchor", ""), x)
        boxes.append((left, left + width, y - 9, y + 2))
    return boxes


@pytest.mark.parametrize("rows", [1, 12, 200])
@pytest.mark.parametrize("apart", [1, 1_000, 1_000_000, 86_400_000_000])
def test_no_label_lies_on_another_or_beyond_the_edge(rows: int, apart: int) -> None:
    start = at("00")
    items = tuple(Item("event", i, start + i * apart, start + i * apart * 2, NEVER, start + i * apart) for i in range(rows))
    windows = tuple((start + i * apart * 4, start + i * apart * 4 + apart * 8) for i in range(-(-rows // 4)))
    svg = as_svg(Timeline("views", 0, "per_page", items, windows))
    boxes = labels(svg)
    assert all(left >= 0 and right <= 964 for left, right, _, _ in boxes)
    for i, (left, right, top, bottom) in enumerate(boxes):
        for other in boxes[i + 1 :]:
            assert not (left < other[1] and other[0] < right and top < other[3] and other[2] < bottom), (boxes[i], other)


def test_the_picture_in_the_docs_is_made_from_this(flow_test: Start, tmp_path: Path) -> None:
    t = flow_test(pages())
    fill(t)
    fresh = tmp_path / PICTURE.name
    fresh.write_text(as_svg(drawn(t)), encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8") == fresh.read_text(encoding="utf-8"), f"copy {fresh} there"
