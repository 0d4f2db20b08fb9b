"""A scalar expression as a value: its text, its type and, where Polars means the same as Spark, its tree.

`tree is None` says that only Spark SQL may evaluate it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Column:
    name: str
    type: pa.DataType


@dataclass(frozen=True)
class Literal:
    value: Any
    type: pa.DataType


@dataclass(frozen=True)
class Call:
    """`op` is one of: = <> < <= > >= and or not is_null in + - * % neg."""

    op: str
    args: "tuple[Tree, ...]"
    type: pa.DataType


Tree = Column | Literal | Call


@dataclass(frozen=True)
class Expression:
    text: str
    type: pa.DataType
    columns: tuple[str, ...]  # the columns it reads
    tree: Tree | None = None


def walk(tree: Tree) -> Iterator[Tree]:
    yield tree
    if isinstance(tree, Call):
        for arg in tree.args:
            yield from walk(arg)
