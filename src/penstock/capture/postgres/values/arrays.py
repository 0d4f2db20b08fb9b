"""PostgreSQL's text of arrays as JSON arrays: plain ones by columns, those with quotes or several dimensions one by one."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import array_of, chosen, joined, values_in

Convert = Callable[[pa.Array], pa.Array]

_MAX_DIMENSIONS = 6  # PostgreSQL has no more
_PLAIN = r'\A\{[^"{}\\]*\}\z'
_NULL = "NULL"  # quoted where it is a text


def array_values(values: pa.Array, delimiter: str, convert: Convert) -> pa.Array:
    """Each array as JSON. `values` has no nulls; convert: elements, of which some are null, to JSON. What is no array is text."""
    plain = np.asarray(pc.match_substring_regex(values, _PLAIN))
    if plain.all():
        return _plain(values, delimiter, convert)
    found = pa.array(_one_by_one(values_in(values.filter(array_of(~plain)), str), delimiter, convert), pa.utf8())
    places = np.cumsum(plain) - 1
    places[~plain] = plain.sum() + np.arange(len(found))
    return pa.concat_arrays([_plain(values.filter(array_of(plain)), delimiter, convert), found]).take(array_of(places))


def _plain(values: pa.Array, delimiter: str, convert: Convert) -> pa.Array:
    lists: Any = pc.split_pattern(pc.utf8_slice_codeunits(values, 1, -1), delimiter)
    elements = lists.flatten()
    words = convert(chosen(pc.equal(elements, pa.scalar(_NULL)), pa.scalar(None, pa.utf8()), elements))
    texts: Any = pc.binary_join(pa.ListArray.from_arrays(lists.offsets, words), ",")
    return chosen(pc.equal(values, pa.scalar("{}")), pa.scalar("[]"), joined("[", texts, "]", ""))


def _one_by_one(texts: Sequence[str], delimiter: str, convert: Convert) -> list[str]:
    elements: list[str | None] = []
    trees = [_tree(text, delimiter, elements) for text in texts]
    words = values_in(convert(pa.array(elements, pa.utf8())), str)
    return [orjson.dumps(text).decode() if tree is None else _written(tree, words) for text, tree in zip(texts, trees, strict=True)]


def _written(tree: Sequence[Any], words: Sequence[str]) -> str:
    return "[" + ",".join(words[each] if isinstance(each, int) else _written(each, words) for each in tree) + "]"


def _tree(text: str, delimiter: str, elements: list[str | None]) -> list[Any] | None:
    """The array as lists of places in `elements`, to which its own are added; None if the text is no array."""
    token, stack, at = _token(delimiter), [list[Any]()], text.find("=") + 1 if text.startswith("[") else 0
    while at < len(text):
        found = token.match(text, at)
        if found is None or len(stack) > _MAX_DIMENSIONS + 1:
            return None
        at, (quoted, mark, bare) = found.end(), found.groups()
        if mark == "{":
            stack.append([])
        elif mark == "}" and len(stack) > 1:
            ended = stack.pop()
            stack[-1].append(ended)
        elif mark is None:
            stack[-1].append(len(elements))
            elements.append(_unescaped(quoted) if bare is None else None if bare == _NULL else bare)
    whole = len(stack) == 1 and len(stack[0]) == 1 and isinstance(stack[0][0], list)
    return stack[0][0] if whole else None


def _unescaped(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if "\\" in quoted else quoted


@cache
def _token(delimiter: str) -> re.Pattern[str]:
    mark = re.escape(delimiter)
    return re.compile(rf'"([^"\\]*(?:\\.[^"\\]*)*)"|([{{}}{mark}])|([^{{}}"{mark}]+)', re.DOTALL)
