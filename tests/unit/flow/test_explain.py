from datetime import timedelta

import pytest

from golden.make_meanings import Conditions, compared
from penstock.core.time import duration_text
from penstock.flow.explain import as_mermaid, as_text
from penstock.flow.resolve import resolve
from penstock.flow.steps.aggregates import agg
from penstock.flow.steps.kinds import Tumbling


@pytest.fixture
def plan(shop, strings):
    keyed = shop.flow.stream("keyed", "order_id string, x long", key="order_id")
    big = shop.payments.where("paid > 100 and order_id <> 'a'").with_columns(eur="paid * 0.9", up="upper(order_id)")
    sales = big.window(Tumbling("90 seconds"), by="order_id", late="ignore").agg(n=agg.count(), total=agg.sum("eur"))
    sales.view("sales").to("sales_log", partitions=3)
    joined = keyed.join(shop.payments, on="order_id", within=("-5 minutes", "1 hour 30 minutes"), how="left", name="both")
    joined.late.view("too_late")
    shop.payments.map_arrow(upper, "x string").union(shop.payments.select(x="order_id")).view("texts")
    big.select("up").view("ups")
    return shop.plan(strings)


def upper(table):
    return table


def paragraph(text, start):
    return next(p for p in text.split("\n\n") if p.startswith(start))


def test_a_source_shows_topic_time_and_lateness(plan):
    shown = paragraph(as_text(plan), "payments ")
    assert "  topic    payments\n  time     at\n  lateness 10 seconds, idle after 30 seconds\n" in shown
    assert shown.endswith("  gives    order_id string, paid double, at timestamp")


def test_a_source_that_brings_its_own_time_says_so(plan):
    assert "  time     as the topic gives it\n  key      order_id\n" in paragraph(as_text(plan), "keyed ")


def test_expressions_show_where_they_run(plan):
    text = as_text(plan)
    assert "  keeps    paid > 100 and order_id <> 'a'  [polars]" in text
    assert "  makes    up = upper(order_id)  [spark]" in text
    assert "  makes    eur = paid * 0.9  [polars]" in text
    assert "  calls    upper  [python]" in text


def test_a_window_shows_what_it_judges_by(plan):
    shown = paragraph(as_text(plan), "sales ")
    assert shown.splitlines()[1:-1] == [
        "  from     with_columns-where-payments",
        "  by       order_id",
        "  size     1 minute 30 seconds",
        "  makes    n = count(*)",
        "  makes    total = sum(eur)",
        "  judges   window_end > watermark; late rows: ignore",
        "  sends    complete windows",
    ]


def test_a_join_shows_its_bounds(plan):
    shown = paragraph(as_text(plan), "both ")
    assert (
        "  on       order_id, left\n  within   -5 minutes to 1 hour 30 minutes\n  judges   time ≥ watermark; late rows: divert"
        in shown
    )


def test_late_rows_and_unions_are_shown(plan):
    text = as_text(plan)
    assert "  takes    the late rows of its input 2" in paragraph(text, "too_late.right ")
    assert "  from     map-payments, select-payments" in paragraph(text, "texts ")


def test_outputs_show_their_keys(plan):
    lines = [line.rpartition("  (")[0] for line in as_text(plan).split("\n\n")[-1].splitlines()]
    assert lines == [
        "sales → view sales, key window_start, order_id",
        "sales → topic sales_log, key order_id, 3 partitions",
        "too_late → view too_late, key: its position",
        "texts → view texts, key: its position",
        "ups → view ups, key: its position",
    ]


def test_a_diagram_joins_every_step_to_its_inputs_and_outputs(plan):
    shown = as_mermaid(plan)
    lines = [line.strip() for line in shown.splitlines()]
    assert lines[0] == "flowchart LR"
    assert sum(" -->" in line for line in lines) == sum(len(s.inputs) for s in plan.steps) + len(plan.outputs)
    assert sum("-->|late|" in line for line in lines) == 2
    assert 'o0[("view sales")]' in lines
    assert 'o1(["topic sales_log"])' in lines


def test_signs_that_mermaid_would_read_are_written_as_entities(plan):
    where = next(line for line in as_mermaid(plan).splitlines() if "where-payments · where" in line)
    assert "paid #gt; 100 and order_id #lt;#gt; 'a'" in where
    assert ">" not in where.replace("<br/>", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(0), "0 seconds"),
        (timedelta(seconds=1), "1 second"),
        (timedelta(days=2, hours=1), "2 days 1 hour"),
        (timedelta(minutes=-5), "-5 minutes"),
        (timedelta(milliseconds=250, microseconds=3), "250 ms 3 us"),
    ],
)
def test_durations_are_shown_as_they_are_written(value, text):
    assert duration_text(value) == text


def test_columns_that_steps_have_among_themselves_are_not_shown() -> None:
    checked = resolve(compared(), Conditions())
    assert any("__left" in step.schema for step in checked.steps)
    assert "__" not in as_text(checked) + as_mermaid(checked)
