"""What is known of the topics that a flow reads, while it is checked."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.schema import Schema


@dataclass(frozen=True)
class CapturedTable:
    """A table of a database, as the capture that follows it describes it."""

    schema: Schema
    key: tuple[str, ...]
    flat: bool = False  # records are rows, and no envelopes


@dataclass(frozen=True)
class TopicFacts:
    """What the log knows of a topic."""

    written_by_flow: bool = False
    time: str | None = None  # the column its event times come from
    schema: Schema | None = None  # None: a raw topic, or not known
    changelog: bool = False  # its rows change: it is read with flow.table
    capture: str | None = None  # the capture that writes it
    table: CapturedTable | None = None  # what that capture says of it, as far as it has


Facts = Mapping[str, TopicFacts]
