"""What stays of an epoch after its decision is swept: a record of how long each step took, and the engine's marks."""

from collections.abc import Iterator
from typing import Any

import orjson

from penstock.core.time import text
from penstock.engine.decision import Decision, EngineMark
from penstock.errors import NotFound
from penstock.storage.port import Storage

_PER_FILE = 10_000  # epochs
_FILES = 2  # that stay


def keep_record(storage: Storage, decision: Decision, seconds: float, steps: dict[str, float], behind: int) -> None:
    """One line per epoch, for people: never synced, never needed."""
    line = {
        "epoch": decision.epoch,
        "generation": decision.generation,
        "clock": text(decision.clock),
        "rows": decision.rows,
        "behind": behind,
        "seconds": round(seconds, 6),
        "steps": {name: round(value, 6) for name, value in steps.items()},
    }
    number = decision.epoch // _PER_FILE
    appender = storage.append(_file(number))
    try:
        appender.write(b"\n" + orjson.dumps(line))
    finally:
        appender.close()
    if decision.epoch % _PER_FILE == 0 and number >= _FILES:
        storage.remove(_file(number - _FILES), durable=False)


def records(storage: Storage) -> Iterator[dict[str, Any]]:
    """The records that are there, oldest first; a line that a crash tore is left out."""
    for name in sorted(storage.list("records")):
        for line in storage.read(f"records/{name}").to_pybytes().splitlines():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError:
                continue


def _file(number: int) -> str:
    return f"records/{number:08d}.jsonl"


def keep_marks(storage: Storage, decision: Decision) -> None:
    """The engine's marks outlive their decision: results depend on them as long as their rows are in the log. Durable, and the
    same marks twice mean the same."""
    if not decision.marks:
        return
    appender = storage.append("marks.jsonl")
    try:
        appender.write(b"".join(b"\n" + orjson.dumps([decision.epoch, *mark]) for mark in decision.marks) + b"\n")
        appender.sync()
    finally:
        appender.close()


def kept_marks(storage: Storage) -> set[EngineMark]:
    """The marks of all decisions that were swept."""
    try:
        lines = storage.read("marks.jsonl").to_pybytes().splitlines()
    except NotFound:
        return set()
    found = set()
    for line in lines:
        try:
            found.add(EngineMark(*orjson.loads(line)[1:]))
        except orjson.JSONDecodeError:  # empty, or torn by a crash before the decision was forgotten: then it stands again below
            continue
    return found
