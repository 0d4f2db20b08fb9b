"""What an embedded search index says of itself, whatever it is made of; and where it is."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from penstock.core.columns import POSITION
from penstock.core.names import check_name
from penstock.core.schema import Schema
from penstock.errors import BadInput, BadSchema, Mismatch, SinkError
from penstock.sinks.port import SinkSpec

Words = Literal["words", "english", "trigrams"]  # what text is cut into
DIRECTORY = "search"  # of a home: its indexes, by name


@dataclass(frozen=True)
class IndexMeta:
    """Which rows an index holds, and which of their columns can be searched."""

    flow: str
    name: str
    schema: Schema
    key: tuple[str, ...]
    text: tuple[str, ...]
    words: Words

    @classmethod
    def of(cls, spec: SinkSpec, text: tuple[str, ...] | None, words: Words, called: str) -> "IndexMeta":
        """text: None for all columns that are text."""
        strings = [f.name for f in spec.schema if pa.types.is_string(f.type)]
        wrong = next((name for name in text or () if name not in strings), None)
        if wrong is not None or not strings:
            named = f"column {wrong!r} is no column of text" if wrong else "it has no column of text"
            raise SinkError(f"{called} cannot search these rows: {named}", hint=f"columns of text: {', '.join(strings) or 'none'}")
        return cls(spec.flow, spec.name, Schema.of(spec.schema.ddl()), spec.key, text or tuple(strings), words)

    @classmethod
    def parsed(cls, given: str) -> "IndexMeta":
        """ValueError where it is not what `text_of` has written."""
        try:
            facts = json.loads(given)
            facts |= {"schema": Schema.of(facts["schema"]), "key": tuple(facts["key"]), "text": tuple(facts["text"])}
            return cls(**facts)
        except (KeyError, TypeError, BadSchema) as error:
            raise ValueError(f"it does not say what it holds: {error}") from error

    def described(self) -> str:
        facts = {name: getattr(self, name) for name in ("flow", "name", "key", "text", "words")}
        return json.dumps(facts | {"schema": self.schema.ddl()})

    @property
    def fields(self) -> list[pa.Field]:
        """What is kept of a row: its columns, and its position where no column tells it apart."""
        return [*self.schema, *([] if self.key else [pa.field(POSITION, pa.binary(), False)])]

    @property
    def identity(self) -> tuple[str, ...]:
        return self.key or (POSITION,)

    def check_becomes(self, wanted: "IndexMeta", called: str) -> None:
        """Mismatch if the index cannot become what the flow writes now. Columns may be added that are not searched."""
        reason = None
        if (self.flow, self.name) != (wanted.flow, wanted.name):
            reason = f"sink {self.name!r} of flow {self.flow!r} wrote it"
        elif self.key != wanted.key:
            reason = f"its key is ({', '.join(self.key) or 'position'}), not ({', '.join(wanted.key) or 'position'})"
        elif (self.text, self.words) != (wanted.text, wanted.words):
            reason = f"it has {self.words} of {', '.join(self.text)}, not {wanted.words} of {', '.join(wanted.text)}"
        reason = reason or self.schema.can_become(wanted.schema)
        if reason:
            raise Mismatch(
                f"{called} is not what flow {wanted.flow!r} writes now: {reason}",
                hint="remove it and start the flow over with `penstock flow reset`, or name another index",
            )


@dataclass(frozen=True)
class IndexPlace:
    """A name stands for an index in the home; whatever has a / in it is a path."""

    given: str

    @classmethod
    def of(cls, given: str | Path) -> "IndexPlace":
        if not isinstance(given, str | Path) or not str(given):
            raise BadInput(f"{given!r} is no index", hint='a name such as "products", or a path with a / in it')
        place = cls(str(given) if isinstance(given, str) else str(given.absolute()))
        if not place.is_path:
            check_name(place.given, "search index")
        return place

    @property
    def is_path(self) -> bool:
        return "/" in self.given

    @property
    def target(self) -> str:
        """What a sink is called that writes there."""
        return Path(self.given).stem if self.is_path else self.given

    def shown(self, suffix: str) -> str:
        """Where it is, for people."""
        return str(self.path(Path(), suffix)) if self.is_path else f"{DIRECTORY}/{self.given}{suffix} of the home"

    def path(self, home: Path, suffix: str) -> Path:
        return Path(self.given).expanduser().absolute() if self.is_path else home / DIRECTORY / f"{self.given}{suffix}"
