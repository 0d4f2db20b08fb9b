"""Which partition a row goes to: by an expression over its columns, by Kafka's hash of its key, or partition 0.

An expression has columns, whole numbers, `+ - * %` and parentheses, as in `user_id % 3`. It is exact, and `%`, with a positive
number on its right, is never negative. Nothing the user writes is run as code.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.hashing import partitions_of
from penstock.errors import BadInput

Numbers = npt.NDArray[Any]  # int64, or Python integers where these could overflow
Columns = Callable[[str], Numbers]

_TOKEN = re.compile(r"\s*(?:(?P<column>[^\W\d]\w*)|(?P<number>\d{1,18})|(?P<sign>[-+*%()]))")
_SAFE = 2.0**62
_DEEPEST = 50


@dataclass(frozen=True)
class Rule:
    """A partition expression, read once."""

    text: str
    columns: tuple[str, ...]
    evaluate: Callable[[Columns], Numbers]

    @classmethod
    def of(cls, text: str) -> "Rule":
        """The rule a text stands for; BadInput if it is none."""
        reader = _Reader(text)
        evaluate = reader.sum()
        if reader.kind or not reader.columns:
            reader.fail("expected an end" if reader.kind else "it names no column")
        return cls(text, tuple(dict.fromkeys(reader.columns)), evaluate)


def partitions_by_key(keys: pa.Array, partitions: int) -> npt.NDArray[np.int64]:
    """The partition of each key, as Kafka's clients choose it; 0 where there is no key."""
    if partitions == 1 or not len(keys):
        return np.zeros(len(keys), np.int64)
    return partitions_of(keys, partitions)


class _Reader:
    """Reads the grammar: sum = product {(+|-) product}; product = atom {(*|%) atom}; atom = column | number | - atom | ( sum )."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth, self.columns = text, 0, 0, list[str]()
        self.kind, self.word = "", ""
        self.step()

    def step(self) -> None:
        found = _TOKEN.match(self.text, self.at)
        if found:
            self.kind, self.word, self.at = str(found.lastgroup), found[str(found.lastgroup)], found.end()
        elif self.text[self.at :].strip():
            self.fail("expected a column, a number, + - * % or a parenthesis")
        else:
            self.kind, self.word = "", ""

    def sum(self) -> Callable[[Columns], Numbers]:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail("it is nested too deeply")
        left = self.chain(lambda: self.chain(self.atom, "*%"), "+-")
        self.depth -= 1
        return left

    def chain(self, part: Callable[[], Callable[[Columns], Numbers]], signs: str) -> Callable[[Columns], Numbers]:
        left = part()
        while self.kind == "sign" and self.word in signs:
            sign = self.word
            self.step()
            if sign == "%" and not (self.kind == "number" and int(self.word)):
                self.fail("% takes a positive number on its right")
            left = _operation(sign, left, part())
        return left

    def atom(self) -> Callable[[Columns], Numbers]:
        kind, word = self.kind, self.word
        self.step()
        if kind == "column":
            self.columns.append(word)
            return lambda columns: columns(word)
        if kind == "number":
            return lambda columns: np.array([int(word)])
        if word == "-":
            return _operation("-", lambda columns: np.zeros(1, np.int64), self.atom_below())
        if word != "(":
            self.fail("expected a column, a number or a parenthesis")
        inner = self.sum()
        if self.word != ")":
            self.fail("expected )")
        self.step()
        return inner

    def atom_below(self) -> Callable[[Columns], Numbers]:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail("it is nested too deeply")
        inner = self.atom()
        self.depth -= 1
        return inner

    def fail(self, why: str) -> NoReturn:
        raise BadInput(
            f"cannot read the partition expression {self.text[:80]!r}: {why}",
            hint='write columns, whole numbers, + - * % and parentheses, as in "user_id % 3"',
        )


def _operation(sign: str, left: Callable[[Columns], Numbers], right: Callable[[Columns], Numbers]) -> Callable[[Columns], Numbers]:
    def apply(columns: Columns) -> Numbers:
        a, b = left(columns), right(columns)
        if sign == "%":
            remainder: Numbers = a % b
            return remainder
        if object not in (a.dtype, b.dtype):
            about = _arithmetic(sign, a.astype(float), b.astype(float))
            if about.size and np.abs(about).max() > _SAFE:
                a, b = a.astype(object), b.astype(object)
        return _arithmetic(sign, a, b)

    return apply


def _arithmetic(sign: str, a: Numbers, b: Numbers) -> Numbers:
    return a + b if sign == "+" else a - b if sign == "-" else a * b
