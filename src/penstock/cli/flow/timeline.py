"""A timeline as an SVG: event time to the right, append order downwards. Nothing but text, so that nothing is needed to see it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from penstock.core.time import FOREVER, NEVER, moment, text

if TYPE_CHECKING:
    from penstock.engine.diagnose.timeline import Item, Timeline

_WIDTH, _LEFT, _RIGHT, _BAR = 960, 170, 28, 16
_STEPS = [u * n for u in (1, 1_000) for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)]
_STEPS += [1_000_000 * n for n in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200)]
_STEPS += [86_400_000_000 * n for n in (1, 2, 7, 14, 30, 91, 365, 3650, 36500)]
_COLOURS = {
    "event": "#2166ac",
    "late": "#c0392b",
    "corrected": "#7b4fa3",
    "outside": "#8a6d3b",
    "filtered": "#8a8f98",
    "mark": "#1b7837",
}
_WORDS = {
    "event": "on time",
    "late": "late",
    "corrected": "late, corrected its window",
    "outside": "in no window",
    "filtered": "filtered before it was judged",
    "mark": "mark",
}
_STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#24292f}"
    ".small{font-size:11px;fill:#57606a}.title{font-size:15px;font-weight:600}.mark{fill:#1b7837;font-weight:600;stroke:#fff;stroke-width:3px;paint-order:stroke}"
)


def as_svg(timeline: "Timeline") -> str:
    """The whole picture, as the text of a file."""
    return _Picture(timeline).draw()


@dataclass(frozen=True)
class _Picture:
    line: "Timeline"

    @cached_property
    def lanes(self) -> list[int]:
        """For each window the row of bars above the picture that it stands in: windows that overlap stand below each other."""
        ends: list[int] = []
        out = []
        for start, end in self.line.windows:
            lane = next((i for i, free in enumerate(ends) if free <= start), len(ends))
            ends[lane : lane + 1] = [end]
            out.append(lane)
        return out

    @cached_property
    def labelled(self) -> set[int]:
        """The marks that have room for a label."""
        out: list[int] = []
        for i, item in enumerate(self.line.items):
            if item.kind == "mark" and (not out or (i - out[-1]) * self.slot >= 14):
                out.append(i)
        return set(out)

    @property
    def top(self) -> int:
        return 58 + _BAR * (max(self.lanes, default=-1) + 1)

    @cached_property
    def slot(self) -> float:
        """The height of one record."""
        return max(6.0, min(30.0, 600 / max(1, len(self.line.items))))

    @property
    def bottom(self) -> float:
        return self.top + self.slot * (len(self.line.items) + 1)

    @cached_property
    def range(self) -> tuple[int, int]:
        """The times that are seen: all, unless some lie far away from the rest; those are drawn at the edge."""
        items, windows = self.line.items, self.line.windows
        times = sorted(i.time for i in items if i.kind != "mark" and NEVER < i.time < FOREVER) or [0]
        edges = [i.time for i in items if NEVER < i.time < FOREVER] + [i.after for i in items if NEVER < i.after < FOREVER]
        edges += [edge for window in windows for edge in window] or [0, 1]
        low, high = times[len(times) // 10], times[-1 - len(times) // 10]
        reach = 3 * max(high - low, windows[0][1] - windows[0][0] if windows else 1_000_000)
        first, last = max(min(edges), low - reach), min(max(edges), high + reach)
        margin = max(1, (last - first) // 40)
        return first - margin, last + margin

    def x(self, time: int) -> float:
        first, last = self.range
        inside = min(max(time, first), last)
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (inside - first) / (last - first)

    def y(self, index: int) -> float:
        return self.top + self.slot * (index + 1)

    def draw(self) -> str:
        legend = list(self._legend())
        height = self.bottom + 62 + 20 * len(legend)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" height="{height:.0f}" '
            f'role="img" aria-label="{_attribute(self._title())}">',
            f"<style>{_STYLE}</style>",
            f'<rect width="{_WIDTH}" height="{height:.0f}" fill="#ffffff"/>',
            f'<text class="title" x="16" y="26">{escape(self._title())}</text>',
            *self._windows(),
            *self._axes(),
            *self._watermark(),
            *(shape for i, item in enumerate(self.line.items) for shape in self._item(i, item)),
            *(shape for i, row in enumerate(legend) for shape in _row(row, self.bottom + 62 + 20 * i)),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _title(self) -> str:
        judged = f", judged by {self.line.step}" if self.line.step else ""
        return f"{self.line.topic}/{self.line.partition}{judged}"

    def _windows(self) -> Iterator[str]:
        for i, ((start, end), lane) in enumerate(zip(self.line.windows, self.lanes, strict=True)):
            left, right = self.x(start), self.x(end)
            fill, y = ("#f2c14e", "#7fb069")[(self.lanes[:i].count(lane) + lane) % 2], 42 + _BAR * lane
            band = f'y="{self.top}" width="{right - left:.1f}" height="{self.bottom - self.top:.1f}"'
            yield f'<rect x="{left:.1f}" {band} fill="{fill}" fill-opacity="{0.13 / (max(self.lanes) + 1) ** 0.5:.2f}"/>'
            yield (
                f'<rect x="{left + 0.5:.1f}" y="{y}" width="{max(1.0, right - left - 1):.1f}" height="{_BAR - 3}" rx="2" '
                f'fill="{fill}" fill-opacity="0.55"><title>window {text(start)} to {text(end)}</title></rect>'
            )
            labels = (f"{self._clock(start)} – {self._clock(end)}", self._clock(start))
            label = next((words for words in labels if len(words) * 6.4 < right - left), None)
            if label:
                yield f'<text class="small" x="{(left + right) / 2:.1f}" y="{y + 10}" text-anchor="middle">{label}</text>'
        for edge in sorted({edge for window in self.line.windows for edge in window}):
            yield f'<path d="M{self.x(edge):.1f} {self.top}V{self.bottom:.1f}" stroke="#b9a36b" stroke-dasharray="3 3"/>'

    def _axes(self) -> Iterator[str]:
        first, last = self.range
        right = _WIDTH - _RIGHT
        yield f'<path d="M{_LEFT} {self.top}V{self.bottom:.1f}H{right}" fill="none" stroke="#57606a"/>'
        for tick in _ticks(first, last):
            at = self.x(tick)
            yield f'<path d="M{at:.1f} {self.bottom:.1f}v5" stroke="#57606a"/>'
            yield f'<text class="small" x="{at:.1f}" y="{self.bottom + 18:.1f}" text-anchor="middle">{self._clock(tick)}</text>'
        day = "" if self._dates else f", {moment(first):%Y-%m-%d}"
        yield f'<text x="{(_LEFT + right) / 2}" y="{self.bottom + 38:.1f}" text-anchor="middle">event time →  (UTC{day})</text>'
        yield f'<text x="16" y="{self.top - 5}">append time ↓</text>'
        every = max(1, round(18 / self.slot + 0.49))
        for i, item in enumerate(self.line.items):
            if i % every == 0 and item.kind != "mark":
                label = f"{self._stamp(item)}  @{item.offset}"
                yield f'<text class="small" x="{_LEFT - 10}" y="{self.y(i) + 4:.1f}" text-anchor="end">{label}</text>'
                yield f'<path d="M{_LEFT - 5} {self.y(i):.1f}h5" stroke="#57606a"/>'

    def _watermark(self) -> Iterator[str]:
        """A step for every row that moves it; what lies to its left is behind it."""
        path, shade = "", ""
        for i, item in enumerate(self.line.items):
            if item.after <= NEVER:
                continue
            x, y = self.x(item.after), self.y(i)
            path += f"H{x:.1f}V{y + self.slot:.1f}" if path else f"M{x:.1f} {y:.1f}V{y + self.slot:.1f}"
            shade += f"H{x:.1f}V{y + self.slot:.1f}" if shade else f"M{_LEFT} {y:.1f}H{x:.1f}V{y + self.slot:.1f}"
        if path:
            yield f'<path d="{shade}H{_LEFT}Z" fill="#24292f" fill-opacity="0.06"/>'
            yield f'<path d="{path}" fill="none" stroke="#24292f" stroke-width="2"/>'

    def _item(self, index: int, item: "Item") -> Iterator[str]:
        x, y = self.x(item.time), self.y(index)
        if item.kind != "mark":
            yield _shape(item.kind, x, y, min(5.5, self.slot * 0.6), self._tip(item))
            return
        label = "end of input" if item.time >= FOREVER else f"mark {self._clock(item.time)}"
        yield _shape("mark", x, y, min(8.0, self.slot * 0.45), f"{label}, before offset {item.offset}")
        if index in self.labelled:  # left of it there are late rows alone
            side, shift = ("start", 6) if x < _LEFT + 120 else ("end", -6)
            yield f'<text class="mark" x="{x + shift:.1f}" y="{y - 5:.1f}" text-anchor="{side}">{label}</text>'

    def _tip(self, item: "Item") -> str:
        where = f"{self.line.topic}/{self.line.partition}@{item.offset}"
        return f"{where} · time {text(item.time)} · appended {text(item.appended)} · W {text(item.before)} · {_WORDS[item.kind]}"

    def _legend(self) -> Iterator[list[tuple[str, str]]]:
        there = {item.kind for item in self.line.items}
        row = [(kind, words) for kind, words in _WORDS.items() if kind in there]
        if not self.line.step:
            row = [(kind, "record" if kind == "event" else words) for kind, words in row]
        yield [*row, ("line", "watermark after each record"), *([("band", "window")] if self.line.windows else [])]
        if self.line.hidden:
            yield [("", f"{self.line.hidden:,} records are not shown: they cannot be read, or their time is not plausible")]

    @cached_property
    def _dates(self) -> bool:
        return moment(self.range[0]).date() != moment(self.range[1]).date()

    def _clock(self, time: int) -> str:
        first, last = self.range
        form = "%Y-%m-%d" if last - first > 86_400_000_000 * 7 else "%m-%d %H:%M" if self._dates else "%H:%M:%S"
        fraction = f".{time % 1_000_000:06d}".rstrip("0").rstrip(".") if last - first < 10_000_000 else ""
        return f"{moment(time):{form}}{fraction}"

    def _stamp(self, item: "Item") -> str:
        stamps = [i.appended for i in self.line.items if i.appended > NEVER]
        span = max(stamps) - min(stamps)
        form = "%m-%d %H:%M:%S" if span > 86_400_000_000 else "%H:%M:%S"
        return f"{moment(item.appended):{form}}" + (f".{item.appended // 1000 % 1000:03d}" if span < 10_000_000 else "")


def _ticks(first: int, last: int, most: int = 9) -> Sequence[int]:
    step = next((s for s in _STEPS if (last - first) / s <= most), _STEPS[-1])
    return range(-(-first // step) * step, last + 1, step)


def _shape(kind: str, x: float, y: float, r: float, tip: str) -> str:
    colour, title = _COLOURS[kind], f"<title>{escape(tip)}</title>"
    if kind == "late":
        d = r + 1
        return f'<path d="M{x:.1f} {y - d:.1f}l{d:.1f} {d:.1f}l-{d:.1f} {d:.1f}l-{d:.1f} -{d:.1f}Z" fill="{colour}">{title}</path>'
    if kind == "corrected":
        return f'<rect x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r:.1f}" height="{2 * r:.1f}" fill="{colour}">{title}</rect>'
    if kind == "mark":
        return f'<path d="M{x:.1f} {y - r:.1f}v{2 * r:.1f}" stroke="{colour}" stroke-width="3">{title}</path>'
    if kind == "outside":
        d = r * 0.8
        cross = f"M{x - d:.1f} {y - d:.1f}l{2 * d:.1f} {2 * d:.1f}m0 -{2 * d:.1f}l-{2 * d:.1f} {2 * d:.1f}"
        return f'<path d="{cross}" stroke="{colour}" stroke-width="1.8" fill="none">{title}</path>'
    fill = "#ffffff" if kind == "filtered" else colour
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" fill="{fill}" stroke="{colour}">{title}</circle>'


def _row(entries: list[tuple[str, str]], y: float) -> Iterator[str]:
    """A line of the legend."""
    x = 24.0
    for kind, words in entries:
        if kind == "line":
            yield f'<path d="M{x - 6:.1f} {y + 3:.1f}h8v-6h8" fill="none" stroke="#24292f" stroke-width="2"/>'
        elif kind == "band":
            yield f'<rect x="{x - 6:.1f}" y="{y - 7:.1f}" width="16" height="14" fill="#f2c14e" fill-opacity="0.4"/>'
        elif kind:
            yield _shape(kind, x, y, 5.0, words)
        yield f'<text class="small" x="{x + (14 if kind else -8):.1f}" y="{y + 4:.1f}">{escape(words)}</text>'
        x += 44 + 5.7 * len(words)


def _attribute(words: str) -> str:
    return escape(words, {'"': "&quot;"})
