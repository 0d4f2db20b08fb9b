"""Departments are renamed and closed, people move: the view follows."""

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture
def test() -> Iterator[Any]:
    with runpy.run_path(str(HERE / "flow.py"))["flow"].test() as t:
        t.send("employees", *rows("employees")[:4])
        t.send("departments", *rows("departments")[:2])
        t.epoch()
        yield t


def staff(test: Any) -> dict[str, str | None]:
    return {row["name"]: row["department"] for row in test.rows("staff")}


def payroll(test: Any) -> dict[str | None, tuple[int, int, int]]:
    return {row["department"]: (row["people"], row["most"], row["payroll"]) for row in test.rows("payroll")}


def test_everybody_is_shown_also_without_a_department(test: Any) -> None:
    assert staff(test) == {"Ada": "Engineering", "Ben": "Engineering", "Cleo": "Sales", "Dan": None}
    assert payroll(test) == {"Engineering": (2, 5200, 10_000), "Sales": (1, 5600, 5600), None: (1, 4100, 4100)}


def test_a_department_that_is_renamed_changes_the_rows_of_its_people(test: Any) -> None:
    test.send("departments", {"department_id": 10, "department": "Research"})
    test.epoch()
    assert staff(test) == {"Ada": "Research", "Ben": "Research", "Cleo": "Sales", "Dan": None}
    assert payroll(test) == {"Research": (2, 5200, 10_000), "Sales": (1, 5600, 5600), None: (1, 4100, 4100)}


def test_a_person_who_moves_takes_the_row_along(test: Any) -> None:
    test.send("employees", {"employee_id": 1, "name": "Ada", "department_id": 20, "salary": 6000})
    test.epoch()
    assert staff(test)["Ada"] == "Sales"
    assert payroll(test) == {"Engineering": (1, 4800, 4800), "Sales": (2, 6000, 11_600), None: (1, 4100, 4100)}


def test_a_department_that_is_closed_leaves_its_people_without_one(test: Any) -> None:
    test.delete("departments", {"department_id": 10})
    test.epoch()
    assert staff(test) == {"Ada": None, "Ben": None, "Cleo": "Sales", "Dan": None}
    assert payroll(test) == {"Sales": (1, 5600, 5600), None: (3, 5200, 14_100)}


def test_a_person_who_leaves_disappears(test: Any) -> None:
    test.delete("employees", {"employee_id": 3})
    test.crash("after_decide")
    assert staff(test) == {"Ada": "Engineering", "Ben": "Engineering", "Dan": None}
    assert payroll(test) == {"Engineering": (2, 5200, 10_000), None: (1, 4100, 4100)}
