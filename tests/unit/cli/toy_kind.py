"""A kind of captures whose database is a list in memory: what is prepared in it, and what goes wrong, is told by a test."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from capture_scripted import TABLES, ScriptedEngine, Work, random_script
from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import Finding, Kept
from penstock.capture.port import Engine, Table
from penstock.errors import CaptureError, NotFound, PenstockError
from penstock.storage.port import Storage


@dataclass
class ToyDatabase:
    """prepared: the tables of each capture."""

    prepared: dict[str, tuple[Table, ...]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=lambda: [Finding("ok", "the list is there")])
    script: list[Work] = field(default_factory=lambda: random_script(Random(1), 5))
    away: PenstockError | None = None
    breaks: bool = False  # behind the first half of a preparation
    kept: Kept = field(default_factory=Kept)
    cut_off: tuple[int, ...] = ()


class ToyKind:
    def __init__(self, database: ToyDatabase) -> None:
        self.database = database

    def check(self, definition: CaptureDefinition) -> Sequence[Finding]:
        return self.database.findings

    def tables(self, definition: CaptureDefinition, patterns: Sequence[str]) -> Sequence[Table]:
        self._asked()
        found = [(pattern, [t for t in TABLES if pattern in ("*", t[1], ".".join(t))]) for pattern in patterns]
        for pattern, tables in found:
            if not tables:
                raise NotFound(f"{pattern!a} means no table")
        return [table for _, tables in found for table in tables]

    def statements(self, definition: CaptureDefinition) -> Sequence[str]:
        there = self.database.prepared.get(definition.name, ())
        return [f"follow {table[1]};" for table in definition.tables if table not in there]

    def set_up(self, definition: CaptureDefinition) -> CaptureDefinition:
        self._asked()
        self.database.prepared[definition.name] = definition.tables
        if self.database.breaks:
            raise CaptureError("the list is torn")
        return replace(definition, options={**definition.options, "slot": "toy"})

    def open(self, definition: CaptureDefinition, storage: Storage) -> Engine:
        return ScriptedEngine(self.database.script, Random(1), cut_off=self.database.cut_off)

    def tear_down(self, definition: CaptureDefinition) -> Sequence[str]:
        self._asked()
        return [f"{definition.name} is dropped"] if self.database.prepared.pop(definition.name, None) is not None else []

    def look(self, definition: CaptureDefinition) -> Kept:
        self._asked()
        return self.database.kept

    def leftovers(self, definition: CaptureDefinition) -> Sequence[str]:
        return [f"drop {definition.name};"]

    def _asked(self) -> None:
        if self.database.away:
            raise self.database.away
