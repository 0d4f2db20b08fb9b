"""The embedded search indexes, by kind."""

from pathlib import Path

from penstock.sinks import search
from penstock.sinks.stores.search import SearchDefinition

KINDS = ("fts5",)


def definition_of(kind: str, place: Path) -> SearchDefinition:
    """An index at this place."""
    return search(place / "index.db")
