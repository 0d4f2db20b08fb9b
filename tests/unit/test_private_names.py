"""Tests look at Penstock through its public names: how often they do not is counted here, and may only fall."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
NOT_OURS = {
    "_replace",
    "_asdict",
    "_fields",
    "_exit",
    "_jvm",
    "_jsc",
    "_gateway",
    "_TIMED_OUT",
}  # of named tuples, os, Spark, Kafka
PATCHES = {"setattr", "setitem", "delattr"}
# Private names that tests read, call or replace, by part of the tree. Lower a number when you let go of one.
MOST = {"contract": 12, "faults": 28, "laws": 4, "spark": 1, "unit": 44}


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Where a module uses a private name that it did not make itself, and which."""
    own = set(_made_here(tree))
    for node in ast.walk(tree):
        for name in _used(node):
            if name.startswith("_") and not name.startswith("__") and name not in own | NOT_OURS:
                yield getattr(node, "lineno", 0), name


def _made_here(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                yield name


def _used(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            return
        case ast.Attribute(attr=name):
            yield name
        case ast.ImportFrom(module=str(module), names=names) if module.startswith("penstock"):
            yield from (alias.name for alias in names)
        case ast.Call(func=ast.Attribute(attr=attr) | ast.Name(id=attr), args=args) if attr in PATCHES:
            # names given as text: setattr(thing, "_name", …), setattr("penstock.thing._name", …)
            texts = [a.value for a in args[:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            yield from (text.rpartition(".")[2] for text in texts)


def found_in(part: str) -> Counter[str]:
    """How many there are in each file of a part of the tree."""
    files = sorted((TESTS / part).rglob("*.py"))
    return +Counter({str(f.relative_to(TESTS)): len(list(private_names(ast.parse(f.read_text())))) for f in files})


def test_tests_use_no_more_private_names_than_they_did() -> None:
    for part, most in MOST.items():
        found = found_in(part)
        assert found.total() <= most, f"use a public name, or make one: {found}"


def test_a_private_name_is_seen_however_it_is_used() -> None:
    text = """
from penstock.log import _hidden
def _own(): ...
class Mine(Theirs):
    def __init__(self):
        self._mine = _own()
thing._inner.value
self._theirs
Mine()._mine
pair._replace(left=1)
patch.setattr(thing, "_renamed", 1)
patch.setattr("penstock.log.open._known", {})
patch.setattr(thing, "_own", 1)
"""
    assert [name for _, name in private_names(ast.parse(text))] == ["_hidden", "_renamed", "_known", "_inner"]
