"""A table, or a query, asked for many keys by one SELECT: names quoted, values as parameters, answers matched to their keys."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from penstock.core.schema import Schema
from penstock.errors import BadFlow
from penstock.lookups.values import zoned
from penstock.plan import Asked

Rows = Sequence[Sequence[Any]]
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":{}", "named": ":p{}"}


@dataclass(frozen=True)
class KeyedTable:
    """What is asked. source: the table or query as it stands behind FROM. style: how the driver writes parameters."""

    called: str
    source: str
    key: tuple[str, ...]  # its columns, in the order of `on`
    on: tuple[str, ...]
    answers: Schema
    quote: str = '"'
    style: str = "qmark"
    bound: Callable[[Any], Any] = zoned  # a value of a key as the store has it

    def query(self, keys: Asked) -> tuple[str, "Sequence[Any] | dict[str, Any]"]:
        values = [self.bound(value) for key in keys for value in key.values()]
        marks = iter(self._marks(len(values)))
        columns = [self.quoted(name) for name in self.key]
        if len(columns) == 1:
            condition = f"{columns[0]} IN ({', '.join(marks)})"
        else:
            condition = " OR ".join("(" + " AND ".join(f"{c} = {next(marks)}" for c in columns) + ")" for _ in keys)
        wanted = ", ".join([*columns, *(self.quoted(name) for name in self.answers.names)])
        sql = f"SELECT {wanted} FROM {self.source} WHERE {condition}"
        return sql, {f"p{i}": v for i, v in enumerate(values)} if self.style == "named" else values

    @property
    def mark(self) -> str:
        """Of a parameter."""
        return _MARKS[self.style]

    def answers_in(self, found: Rows, keys: Asked) -> list[dict[str, Any] | None]:
        """For each key the columns of its row, or None."""
        asked = [tuple(map(self.bound, key.values())) for key in keys]
        rows = self._by_key(found, set(asked))
        return [rows.get(key) for key in asked]

    def quoted(self, name: str) -> str:
        return self.literal(f"{self.quote}{name.replace(self.quote, 2 * self.quote)}{self.quote}")

    def literal(self, sql: str) -> str:
        """In a statement with parameters."""
        return sql.replace("%", "%%") if "%" in self.mark else sql

    def _marks(self, count: int) -> list[str]:
        shift = 1 if self.style == "numeric" else 0
        return [self.mark.format(i + shift) for i in range(count)]

    def _by_key(self, found: Rows, asked: set[tuple[Any, ...]]) -> dict[tuple[Any, ...], dict[str, Any]]:
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in found:
            key, values = tuple(map(_comparable, row[: len(self.key)])), row[len(self.key) :]
            if key in rows:
                hint = "look up by columns that are unique there: key=…"
                raise BadFlow(f"{self.called} has several rows with {self._shown(key)}", hint=hint)
            if key in asked:
                rows[key] = dict(zip(self.answers.names, values, strict=True))
            elif [type(v) for v in key] not in [[type(v) for v in known] for known in asked]:
                hint = f"declare the stream's {', '.join(self.on)} with the type that the table has"
                raise BadFlow(f"{self.called} gave {self._shown(key)}, which is none of the keys it was asked for", hint=hint)
        return rows  # a row of another key: the database compares otherwise than we do, by case perhaps

    def _shown(self, key: Sequence[Any]) -> str:
        return ", ".join(f"{name} = {value!r}" for name, value in zip(self.key, key, strict=True))


def _comparable(value: Any) -> Any:
    """As the stream has it, which knows neither UUIDs nor times without a zone."""
    return str(value) if isinstance(value, UUID) else zoned(value)
