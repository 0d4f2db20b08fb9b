"""The embedded search indexes, by kind."""

from pathlib import Path
from typing import Any

from penstock.sinks import search, tantivy
from penstock.sinks.stores.search.fts5 import SearchDefinition
from penstock.sinks.stores.search.tantivy import TantivyDefinition

KINDS = ("fts5", "tantivy")


def path_of(kind: str, place: Path, name: str = "index") -> Path:
    return place / (f"{name}.db" if kind == "fts5" else name)


def definition_of(kind: str, place: Path, name: str = "index", **how: Any) -> SearchDefinition | TantivyDefinition:
    """An index at this place."""
    path = path_of(kind, place, name)
    return search(path, **how) if kind == "fts5" else tantivy(path, **how)
