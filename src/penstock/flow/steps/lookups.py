"""Each row with what somebody else answers for its key: a function that asks a service, or a table of a database."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal

import pyarrow as pa

from penstock import plan
from penstock.core.schema import Schema
from penstock.core.time import duration
from penstock.flow import arguments
from penstock.flow.definition import Known
from penstock.flow.place import At
from penstock.lookups.database import SQLITE, Database

Remote = Callable[[list[dict[str, Any]]], list[dict[str, Any] | None]] | plan.Remote
Span = str | timedelta

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(?:\.[A-Za-z_][A-Za-z0-9_$]*)*", re.ASCII)
_STYLES = ("qmark", "format", "pyformat", "numeric", "named")


@dataclass(frozen=True)
class LookupDefinition:
    """The stream's columns and those of the answers; rows of one batch with one key ask once."""

    remote: Remote
    on: tuple[str, ...]
    answers: Schema
    how: Literal["left", "inner"]
    asking: plan.Asking
    on_error: plan.OnError = "dead"

    kind: ClassVar[str] = "lookup"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = False  # answers may differ between what is taken back and what is put in

    @property
    def by(self) -> tuple[str, ...]:
        return self.on

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        doing = f"look {above.label} up"
        if not self.on:
            at.refuse(f"cannot {doing}: no column to ask with", hint='name it, e.g. on="user_id"')
        on = at.columns(self.on, above.schema, doing)
        for name in on:
            at.keyable(name, above.schema, doing)
        if isinstance(self.remote, plan.Remote) and self.remote.key and len(self.remote.key) != len(on):
            mine, theirs = ", ".join(on), ", ".join(self.remote.key)
            at.refuse(f"cannot {doing}: on={mine} are not as many columns as key={theirs} of {self.remote.called}")
        hint = "leave it out of schema=, or give the stream's column another name with select first"
        at.new_columns([*above.schema.names, *(at.new_name(n) for n in self.answers.names)], doing, hint=hint)
        added = [f.with_nullable(True) if self.how == "left" else f for f in self.answers]
        schema = Schema(pa.schema([*above.schema.arrow, *added]))
        types = tuple(above.schema.type(name) for name in on)
        definition = plan.Lookup(self.remote, on, self.how, self.answers, self.asking, types)
        step = plan.Step(at.name, (above.name,), definition, schema, at.origin, on_error=self.on_error)
        return Known((step,), at.label(above), above.view_key, above.topic_key, (above,))


def given(
    remote: Any,
    on: tuple[str, ...],
    schema: Any,
    how: Literal["left", "inner"],
    asking: plan.Asking,
    on_error: plan.OnError = "dead",
) -> LookupDefinition:
    """A lookup as a user writes it."""
    if not isinstance(remote, plan.Remote) and not callable(remote):
        arguments.refuse(
            f"cannot ask {remote!r}", 'give a function of a list of keys, or a store: lookups.sqlite("users.db", "users")'
        )
    return LookupDefinition(remote, on, Schema.of(schema), how, asking, on_error)


def asking(
    cache: Span | None, cache_keys: int, batch: int, retries: int, pause: Span, timeout: Span | None, breaker: int, rest: Span
) -> plan.Asking:
    """How somebody is asked, as a user writes it."""
    numbers = [("cache_keys", cache_keys, 1), ("batch", batch, 1), ("retries", retries, 0), ("breaker", breaker, 1)]
    for name, number, least in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            arguments.refuse(f"{name}={number!r} is out of range", f"give a whole number from {least} up")
    return plan.Asking(
        cache=timedelta() if cache is None else duration(cache, "cache"),
        cache_keys=cache_keys,
        batch=batch,
        retries=retries,
        pause=duration(pause, "pause"),
        timeout=None if timeout is None else duration(timeout, "timeout"),
        breaker=breaker,
        rest=duration(rest, "rest"),
    )


def database(
    connect: str | Callable[[], Any], *, table: str, key: str | Iterable[str] = (), paramstyle: str | None = None
) -> Database:
    """A table of a database to look rows up in: `orders.lookup(database("sqlite:///users.db", table="users"), on="user_id", …)`.

    `connect` is a function that gives a DB-API connection, or a URL `sqlite:///path`. `key` names the table's columns, in the order
    of `on`; left out, they are called as in the stream. Together they must be unique. `paramstyle` is only needed where the
    driver's module does not say it. A batch of keys is one SELECT with the keys as parameters."""
    if isinstance(connect, str):
        if not connect.startswith(SQLITE) or len(connect) == len(SQLITE):
            arguments.refuse(
                f"cannot connect to {connect!r}",
                "write sqlite:///path, or give a function that connects: database(lambda: psycopg.connect(…), …)",
            )
        connect = SQLITE + os.path.abspath(connect.removeprefix(SQLITE))  # tasks may run in another directory
    elif not callable(connect):
        arguments.refuse(f"cannot connect with {connect!r}", "give a function that connects, or a URL sqlite:///path")
    columns = (key,) if isinstance(key, str) else tuple(key)
    for what, name in [("table", table), *(("key", column) for column in columns)]:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            arguments.refuse(f"{what}={name!r} is no name of a {what}", "letters, digits and _; a schema before it with a dot")
    if paramstyle not in (None, *_STYLES):
        arguments.refuse(f"paramstyle={paramstyle!r} is not known", f"use one of {', '.join(_STYLES)}")
    return Database(connect, table, columns, paramstyle)
