"""The options of `format("penstock")`: read, checked, and refused with the list of what there is."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from penstock.core.names import check_name
from penstock.errors import BadInput
from penstock.log.port import Durability, End

# `path` is what stands in load("…") and save("…"); it may name the topic.
_ANY = {"topic", "path", "home"}
_READ = _ANY | {"startingoffsets", "includesystemcolumns", "rowspertask"}
_WRITE = _ANY | {"key", "time", "partitions", "durability"}
_ALLOWED = {
    "read": _READ | {"endingoffsets"},
    "readStream": _READ | {"maxrowsperbatch"},
    "write": _WRITE,
    "writeStream": _WRITE | {"writer"},
}
# As they are written; Spark hands them over in lower case.
_SPELLED = {
    name.lower(): name for name in ("startingOffsets", "endingOffsets", "includeSystemColumns", "rowsPerTask", "maxRowsPerBatch")
}
_SPARKS_OWN = {"checkpointlocation", "queryname"}
ROWS_PER_TASK = 1_000_000

Door = Literal["read", "readStream", "write", "writeStream"]
Offsets = Literal["earliest", "latest"] | Mapping[int, int]


@dataclass(frozen=True)
class ReadOptions:
    """What of a topic is read, and how."""

    topic: str
    home: Path
    starting: Offsets
    ending: Offsets
    system: bool
    rows_per_task: int
    rows_per_batch: int | None


@dataclass(frozen=True)
class WriteOptions:
    """Where rows go. None: as the topic has it, or the default for a new one."""

    topic: str
    home: Path
    key: str | None
    time: str | None
    partitions: int | None
    durability: Durability | None
    writer: str | None


def read_options(given: Mapping[str, str], home: Path, door: Door) -> ReadOptions:
    """The options of a read; BadInput for one that is unknown or cannot be understood."""
    options = _known(given, door)
    system = options.get("includesystemcolumns", "false").lower()
    if system not in ("true", "false"):
        raise BadInput(f"the option includeSystemColumns is true or false, not {system!r}")
    return ReadOptions(
        _topic(options),
        _home(options, home),
        _offsets(options.get("startingoffsets", "earliest"), "startingOffsets"),
        _offsets(options.get("endingoffsets", "latest"), "endingOffsets"),
        system == "true",
        _count(options, "rowspertask") or ROWS_PER_TASK,
        _count(options, "maxrowsperbatch"),
    )


def write_options(given: Mapping[str, str], home: Path, door: Door) -> WriteOptions:
    """The options of a write; BadInput for one that is unknown or cannot be understood."""
    options = _known(given, door)
    writer = options.get("writer")
    if door == "writeStream" and not writer:
        raise BadInput(
            'writing a stream needs the option "writer"',
            "it names this stream for the topic: a batch that Spark repeats is known by it, and added once",
            hint='.option("writer", "clicks-from-files"); keep the name as long as you keep the checkpoint',
        )
    durability = options.get("durability")
    if durability is not None and durability not in get_args(Durability):
        raise BadInput(f"the option durability is one of {', '.join(get_args(Durability))}, not {durability!r}")
    return WriteOptions(
        _topic(options),
        _home(options, home),
        options.get("key"),
        options.get("time"),
        _count(options, "partitions"),
        durability,  # type: ignore[arg-type]  # looked up above
        check_name(writer, "writer") if writer else None,
    )


def offsets_of(where: Offsets, topic: str, ends: Mapping[int, End], left_out: Mapping[int, int]) -> dict[int, int]:
    """The offset that an option means in each partition (left_out: where it names none); BadInput if that is not there."""
    if where == "earliest":
        return {number: end.first for number, end in ends.items()}
    if where == "latest":
        return {number: end.next for number, end in ends.items()}
    for number, offset in where.items():
        if number not in ends:
            raise BadInput(f"topic {topic} has no partition {number}", f"it has 0 to {len(ends) - 1}")
        end = ends[number]
        if not end.first <= offset <= end.next:
            raise BadInput(f"{topic}/{number} has no offset {offset}", f"it begins at {end.first} and ends before {end.next}")
    return {**left_out, **where}


def _known(given: Mapping[str, str], door: Door) -> dict[str, str]:
    options = {name.lower(): value for name, value in given.items()}
    allowed = _ALLOWED[door]
    for name in options:
        if name not in allowed | _SPARKS_OWN:
            there = ", ".join(sorted(_SPELLED.get(n, n) for n in allowed - {"path"}))
            raise BadInput(f'format("penstock") has no option {_SPELLED.get(name, name)!r} in {door}', f"there are {there}")
    return options


def _topic(options: Mapping[str, str]) -> str:
    name = options.get("topic") or options.get("path")
    if not name:
        raise BadInput("which topic?", hint='say .option("topic", "orders")')
    return check_name(name)


def _home(options: Mapping[str, str], home: Path) -> Path:
    return Path(options["home"]).expanduser().absolute() if options.get("home") else home


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise BadInput(f"the option {_SPELLED.get(name, name)} is a whole number from 1 on, not {text!r}")
    return int(text)


def _offsets(text: str, name: str) -> Offsets:
    if text in ("earliest", "latest"):
        return text  # type: ignore[return-value]  # one of the two words
    hint = 'give earliest, latest, or an offset for each partition, like {"0": 120, "1": 80}'
    try:
        found = json.loads(text)
        offsets = {int(number): offset for number, offset in found.items()}
    except (ValueError, AttributeError) as wrong:
        raise BadInput(f"the option {name} cannot be read: {text!r}", hint=hint) from wrong
    if any(type(offset) is not int or offset < 0 for offset in offsets.values()):
        raise BadInput(f"the option {name} has an offset that is none: {text!r}", hint=hint)
    return offsets
