"""One outage is one message: fired and resolved, by key, told again only if that is wanted."""

from typing import Any

import pytest

from penstock import Flow
from penstock.errors import BadFlow

READINGS = "sensor string, value long, at timestamp"


def told(rows: list[tuple[int, str, int]], cut: int = 1, **given: Any) -> list[tuple[str, str, int, str]]:
    """rows: second, sensor, value. Sensor, what is told, value, and when it began."""
    flow = Flow("plant")
    readings = flow.stream("readings", READINGS, time="at", lateness="5 seconds")
    readings.alert(by="sensor", name="alerts", **given).to("alerts")
    with flow.test() as t:
        for n, (second, sensor, value) in enumerate(rows):
            t.send("readings", {"sensor": sensor, "value": value, "at": f"2024-01-15T10:{second // 60:02}:{second % 60:02}Z"})
            if n % cut == cut - 1:
                t.epoch()
        t.end()
        return [(r["sensor"], r["alert"], r["value"], f"{r['since']:%M:%S}") for r in t.rows("alerts")]


OUTAGE = [(0, "a", 50), (10, "a", 95), (20, "a", 99), (30, "b", 91), (40, "a", 80), (50, "a", 60), (60, "a", 96)]


@pytest.mark.parametrize("cut", [1, 2, 7])
def test_an_outage_is_one_message_and_its_end_another(cut: int) -> None:
    assert told(OUTAGE, cut, when="value > 90", resolve="value < 70") == [
        ("a", "fired", 95, "00:10"),
        ("b", "fired", 91, "00:30"),
        ("a", "resolved", 60, "00:10"),
        ("a", "fired", 96, "01:00"),
    ]


def test_without_resolve_it_ends_where_the_condition_does() -> None:
    assert [(word, value) for sensor, word, value, _ in told(OUTAGE, when="value > 90") if sensor == "a"] == [
        ("fired", 95),
        ("resolved", 80),
        ("fired", 96),
    ]


def test_it_is_told_again_so_often_and_what_flaps_in_between_is_not() -> None:
    flapping = [
        (0, "a", 95),
        (10, "a", 60),
        (20, "a", 96),
        (25, "a", 60),
        (30, "a", 97),
        (65, "a", 98),
        (90, "a", 99),
        (130, "a", 99),
    ]
    assert told(flapping, when="value > 90", resolve="value < 70", every="1 minute") == [
        ("a", "fired", 95, "00:00"),
        ("a", "resolved", 60, "00:00"),
        ("a", "fired", 98, "00:30"),
        ("a", "fired", 99, "00:30"),
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"when": "value"}, "it is long, not true or false"),
        ({"when": "value > 1", "resolve": "sensor"}, "it is string, not true or false"),
        ({"when": "value > 1", "by": "nobody"}, "no column 'nobody'"),
    ],
)
def test_what_is_no_condition_or_column_is_refused(wrong: dict[str, str], said: str) -> None:
    flow = Flow("plant")
    flow.stream("readings", READINGS, time="at", lateness="5 seconds").alert(**wrong).to("alerts")
    with pytest.raises(BadFlow, match=said):
        flow.test()
