"""Tables for people, as wide as the terminal: no number, time or key is ever cut, and what does not fit is named.

In this order, until a table fits: headers are broken over lines, then texts shortened with an ellipsis (keys that are text are
broken over lines instead), then columns left out from the right; a table that does not fit even so is printed a field a line.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

LEAST = 12  # a text is not shortened below so many characters
_GAP, _MARGIN = "  ", " "
_LONGEST_PART = 16  # of a header or key that is broken where it has no joint
_NARROWEST = 20
_JOINT = re.compile(r"(?<=[_\s./:@-])")
_NUMBER = re.compile(r"[-+]?\d[\d.,:TZeE+-]*")
_DIGITS = frozenset("0123456789.,:+-")


@dataclass(frozen=True)
class Column:
    """A column with its cells as text. whole: its cells are numbers or times; key: it tells the rows apart and is always shown."""

    name: str
    cells: Sequence[str]
    right: bool = False
    whole: bool = False
    key: bool = False
    floor: int = 0  # as wide as this, where there is room

    @property
    def longest(self) -> int:
        return max(map(length, self.cells), default=0)

    @property
    def natural(self) -> int:
        return max(self.longest, length(self.name), self.floor)

    @property
    def narrow(self) -> int:
        """With its header broken over lines."""
        return max(self.longest, self._header)

    @property
    def least(self) -> int:
        if self.whole:
            return self.narrow
        parts = max((_part(cell) for cell in self.cells), default=0) if self.key else LEAST
        return max(min(self.longest, max(parts, LEAST)), self._header)

    @property
    def _header(self) -> int:
        return _part(self.name)


@dataclass(frozen=True)
class Layout:
    """Which columns are shown, how wide, and which are not."""

    columns: tuple[Column, ...]
    widths: tuple[int, ...]
    left_out: tuple[str, ...] = ()

    @property
    def header(self) -> list[str]:
        """The names, and a rule below them."""
        names = [_folded(column.name, width) for column, width in self._pairs()]
        tall = max(map(len, names))
        lines = self._lines([[""] * (tall - len(lines)) + lines for lines in names])
        return [*lines, _MARGIN + "─" * (sum(self.widths) + len(_GAP) * (len(self.widths) - 1))]

    @property
    def rows(self) -> Iterator[str]:
        for i in range(len(self.columns[0].cells)):
            yield from self._lines([_fitted(column, column.cells[i], width) for column, width in self._pairs()])

    @property
    def shortened(self) -> bool:
        return any(column.longest > width and not column.key for column, width in self._pairs())

    @property
    def remark(self) -> str | None:
        """What the table does not show."""
        said = []
        if self.left_out:
            count = f"{len(self.left_out)} column{'' if len(self.left_out) == 1 else 's'}"
            said.append(f"{count} not shown: {', '.join(self.left_out)}")
        if self.shortened:
            said.append("texts that end in … are longer")
        return f"({'; '.join(said)}; --output jsonl shows all)" if said else None

    def takes(self, columns: Sequence[Column]) -> "Layout | None":
        """The same layout with other cells; None if they need another one."""
        found = {column.name: column for column in columns}
        if list(found) != [*(c.name for c in self.columns), *self.left_out]:
            return None
        new = tuple(found[column.name] for column in self.columns)
        fits = all(c.longest <= width or (width >= LEAST and not c.whole) for c, width in zip(new, self.widths, strict=True))
        return replace(self, columns=new) if fits else None

    def _pairs(self) -> Iterator[tuple[Column, int]]:
        return zip(self.columns, self.widths, strict=True)

    def _lines(self, cells: Sequence[Sequence[str]]) -> Iterator[str]:
        """One row as lines: as many as its tallest cell has."""
        for i in range(max(map(len, cells))):
            words = [
                _padded(lines[i] if i < len(lines) else "", width, column.right)
                for lines, (column, width) in zip(cells, self._pairs(), strict=True)
            ]
            yield (_MARGIN + _GAP.join(words)).rstrip()


def lay_out(columns: Sequence[Column], width: int | None, beside: int = 1) -> Layout | None:
    """How the columns are shown on so many characters (None: without end). None if keys, and so many others, do not fit."""
    shown, left_out = list(columns), list[str]()
    while True:
        widths = _widths(shown, width)
        if widths:
            order = [c.name for c in columns if c.name in left_out]
            return Layout(tuple(shown), tuple(widths), tuple(order))
        others = [column for column in shown if not column.key]
        if len(others) <= beside:
            return None
        shown.remove(others[-1])
        left_out.append(others[-1].name)


def upright(columns: Sequence[Column]) -> Iterator[str]:
    """A field a line, an empty line between two records."""
    names = max(length(column.name) for column in columns)
    for i in range(len(columns[0].cells)):
        if i:
            yield ""
        for column in columns:
            yield f"{_padded(column.name, names)}{_GAP}{column.cells[i]}".rstrip()


@dataclass
class Writer:
    """Prints tables one below the other; the header comes again only where the columns or their widths change."""

    live: bool = False  # more will come: leave room for somewhat longer values
    _last: Layout | None = field(default=None, init=False)

    def lines(self, columns: Sequence[Column], width: int | None) -> tuple[list[str], list[str], str | None]:
        """The header, if it is due; the rows; what they do not show."""
        kept = self._last.takes(columns) if self._last and self.live else None
        if kept:
            return [], list(kept.rows), None
        before = dict(zip((c.name for c in self._last.columns), self._last.widths, strict=True)) if self._last else {}
        if self.live:
            columns = [replace(c, floor=max(before.get(c.name, 0), 6 if c.right else LEAST)) for c in columns]
        self._last = lay_out(columns, width)
        if self._last is None:
            return [], [*upright(columns), *([""] if self.live else [])], None
        return self._last.header, list(self._last.rows), self._last.remark


def width_of_terminal() -> int | None:
    """Characters in a line of standard output; None where it is no terminal and COLUMNS does not say."""
    given = os.environ.get("COLUMNS", "")
    if not (given.isdecimal() and int(given)) and not sys.stdout.isatty():
        return None
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def number_like(cells: Sequence[str], null: str) -> bool:
    """Whether all cells read as numbers or times, so that a part of one would read as another."""
    return all(cell == null or _NUMBER.fullmatch(cell) for cell in cells)


def length(text: str) -> int:
    """Places that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shortened(text: str, width: int) -> str:
    """The text, if longer cut and ended with an ellipsis; never within a number."""
    if length(text) <= width:
        return text
    kept = _head(text, width - 1)
    if text[len(kept)] in _DIGITS:
        kept = kept.rstrip("".join(_DIGITS))
    return kept + "…"


def _widths(columns: Sequence[Column], width: int | None) -> list[int] | None:
    natural = [column.natural for column in columns]
    if width is None:
        return natural
    room = width - len(_MARGIN) - len(_GAP) * (len(columns) - 1)
    narrow = [column.narrow for column in columns]
    if sum(narrow) <= room:
        return _given_back(narrow, natural, room)
    least = [column.least for column in columns]
    if sum(least) > room:
        return None
    cap = max(narrow)
    while sum(_capped(narrow, least, cap)) > room:
        cap -= 1
    return _capped(narrow, least, cap)


def _capped(widths: Sequence[int], least: Sequence[int], cap: int) -> list[int]:
    return [max(low, min(width, cap)) for width, low in zip(widths, least, strict=True)]


def _given_back(narrow: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
    """The narrow widths, made natural from the left on as long as there is room."""
    widths, left = list(narrow), room - sum(narrow)
    for i, wanted in enumerate(natural):
        if wanted - widths[i] <= left:
            left -= wanted - widths[i]
            widths[i] = wanted
    return widths


def _fitted(column: Column, cell: str, width: int) -> list[str]:
    return _folded(cell, width) if column.key else [shortened(cell, width)]


def _part(text: str) -> int:
    """The longest piece of a text that is broken at its joints."""
    return max((min(length(part), _LONGEST_PART) for part in _JOINT.split(text)), default=0)


def _folded(text: str, width: int) -> list[str]:
    """The whole text, broken over lines, at its joints where that is possible."""
    lines = [""]
    for part in _JOINT.split(text):
        if length(lines[-1]) + length(part.rstrip()) <= width:
            lines[-1] += part
            continue
        lines.append(part)
        while length(lines[-1].rstrip()) > width:
            head = _head(lines[-1], width)
            lines[-1:] = [head, lines[-1][len(head) :]]
    return [line.rstrip() for line in lines if line] or [""]


def _head(text: str, width: int) -> str:
    """The first characters that take no more than so many places."""
    while length(text) > width:
        text = text[: -max(1, (length(text) - width) // 2)]
    return text


def _padded(text: str, width: int, right: bool = False) -> str:
    space = " " * (width - length(text))
    return space + text if right else text + space
