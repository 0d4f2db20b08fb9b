"""The names of system columns stand in one file, and no two rooms spell the same name."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.core import columns
from penstock.core.names import check_column
from penstock.errors import BadName

SOURCE = Path(penstock.__file__).parent
HOME = "core/columns.py"
NAMES = {name: value for name, value in vars(columns).items() if name.isupper()}
RESERVED = re.compile(r"(?<![\w\"])__[a-z]\w*(?<!__)(?![\w\"])")  # not in the JSON that an error or a help text shows


FOREIGN = {"__debezium"}  # of its own names


def reserved(path: Path) -> Iterator[str]:
    """The reserved names that stand in the strings of a file, docstrings left out."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from RESERVED.findall(node.value)


def test_a_reserved_name_stands_in_one_file_only() -> None:
    files = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for name in set(reserved(path)) - FOREIGN:
            files[name].add(path.relative_to(SOURCE).as_posix())
    assert {name: where for name, where in files.items() if len(where) > 1} == {}
    assert {name for name, where in files.items() if where == {HOME}} == {v for v in NAMES.values() if v.startswith("__")}


def test_every_column_says_in_one_sentence_what_it_is() -> None:
    lines = (SOURCE / HOME).read_text().splitlines()
    assert [line for line in lines if re.match(r"[A-Z_]+ = ", line) and not re.search(r"  # \S+.*\w", line)] == []


def test_no_user_can_name_a_column_like_one_that_is_hidden() -> None:
    for value in NAMES.values():
        if value.startswith("__"):
            with pytest.raises(BadName):
                check_column(value)
