"""What stays of an epoch after its decision is swept: a record of how long each step took, and the engine's marks."""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from penstock.core.time import text
from penstock.engine.run.epoch.decision import Decision, EngineMark
from penstock.storage.port import Storage

_PER_FILE = 10_000  # epochs
_FILES = 2  # that stay
_MARKS = "marks"
_TOGETHER = 1_000  # epochs after which marks are brought together


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
    if decision.marks:
        files = sorted(storage.list(_MARKS))
        appender = storage.append(f"{_MARKS}/{files[-1] if files else _marks_file(decision.epoch)}")
        try:
            appender.write(b"\n" + _lines(decision.epoch, decision.marks))
            appender.sync()
        finally:
            appender.close()
    if decision.epoch % _TOGETHER == 0:
        _bring_together(storage, decision.epoch)


def kept_marks(storage: Storage) -> set[EngineMark]:
    """The marks of all decisions that were swept, without those that say nothing beside others."""
    found = set()
    for name in storage.list(_MARKS):
        for line in storage.read(f"{_MARKS}/{name}").to_pybytes().splitlines():
            try:
                found.add(EngineMark(*orjson.loads(line)[1:]))
            except (
                orjson.JSONDecodeError
            ):  # empty, or torn by a crash before the decision was forgotten: then it stands again below
                continue
    return found


def _bring_together(storage: Storage, epoch: int) -> None:
    """One file with the marks that count, in place of all. A crash between the two leaves both, which mean the same."""
    files = sorted(storage.list(_MARKS))
    if not files or files == [_marks_file(epoch)]:
        return
    storage.publish(f"{_MARKS}/{_marks_file(epoch)}", _lines(epoch, telling(kept_marks(storage))))
    for name in files:
        storage.remove(f"{_MARKS}/{name}")


def telling(marks: Iterable[EngineMark]) -> list[EngineMark]:
    """The marks that are greater than all before them in their partition, for whom they count; and those that lift an end."""
    kept: dict[tuple[str, int, str], EngineMark] = {}
    out = []
    for mark in sorted(marks, key=lambda m: (m.offset, -m.time)):  # an end before what lifts it
        before = kept.get((mark.source, mark.partition, mark.step))
        if before is None or mark.time > before.time or mark.lifts:
            kept[mark.source, mark.partition, mark.step] = mark
            out.append(mark)
    return out


def _lines(epoch: int, marks: Iterable[EngineMark]) -> bytes:
    return b"".join(orjson.dumps([epoch, *mark]) + b"\n" for mark in marks)


def _marks_file(epoch: int) -> str:
    return f"{epoch:012d}.jsonl"
