"""A capture as its home remembers it: which database, which tables, which topics. Secrets are not in it, only where they are."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.capture.naming import USUAL, TopicNames
from penstock.capture.port import Table
from penstock.errors import Damaged, NotFound
from penstock.log.kafka.secrets import check_private

FORMAT = 1


@dataclass(frozen=True)
class Secret:
    """Where a password is: in a variable of the environment, or in a file. Neither: the client library looks in its usual places,
    such as PGPASSWORD and PGPASSFILE."""

    variable: str | None = None
    file: str | None = None

    def read(self) -> str | None:
        """The password; None if the client library has to find it. NotFound if it is not where it should be."""
        if self.variable:
            if self.variable not in os.environ:
                raise NotFound(f"the environment has no {self.variable}, which should hold the password of the database")
            return os.environ[self.variable]
        if not self.file:
            return None
        check_private(Path(self.file), "the password of the database")
        try:
            return Path(self.file).read_text().rstrip("\r\n")
        except OSError as error:
            why = error.strerror or "it cannot be read"
            raise NotFound(f"the password of the database should be in {self.file}: {why.lower()}") from error


@dataclass(frozen=True)
class CaptureDefinition:
    """What `cdc add` was told. `url` has no password."""

    name: str
    engine: str  # postgres, triggers, debezium, poll
    url: str
    tables: tuple[Table, ...]
    secret: Secret = field(default_factory=Secret)
    topics: str = USUAL
    flat: bool = False
    partitions: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)  # of the engine, such as its slot and publication
    id: str = ""  # told apart from captures of this name in other homes by it
    prepared: bool = True  # the database is set up for all of its tables

    @property
    def names(self) -> TopicNames:
        return TopicNames(self.name, self.topics)

    def json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @staticmethod
    def of(told: Mapping[str, Any]) -> "CaptureDefinition":
        """What `json` gave; Damaged if it cannot be read."""
        try:
            fields = dict(told)
            if fields.pop("format") != FORMAT:
                raise ValueError(f"format {told['format']}")
            fields["tables"] = tuple((schema, table) for schema, table in fields["tables"])
            return CaptureDefinition(**{**fields, "secret": Secret(**fields["secret"])})
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(
                "the definition of a capture cannot be read", str(error), hint="it was written by a later version"
            ) from error
