"""Messages on the terminal or in a pipe, and what a user says to be done with them."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pyarrow as pa

from penstock.cli.output import kind_of, print_table
from penstock.cli.topic.consume import Out
from penstock.cli.topic.rows import as_object, free_name, readable
from penstock.cli.topic.where import Condition
from penstock.core.arrow import schema_of
from penstock.core.schema import TIMESTAMP
from penstock.core.time import text
from penstock.errors import BadInput
from penstock.queue.message import StoredMessage

_TABLE = schema_of(
    [
        ("id", pa.string()),
        ("key", pa.string()),
        ("route", pa.string()),
        ("priority", pa.int64()),
        ("attempt", pa.int64()),
        ("sent", TIMESTAMP),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("body", pa.string()),
        ("died_in", pa.string()),
        ("reason", pa.string()),
    ]
)
_ALWAYS = ("id", "attempt", "sent", "body")


def print_letters(letters: Sequence[StoredMessage], output: str | None) -> None:
    """Prints messages to standard output: JSON lines hold all of each, a table what people look at first."""
    chosen = kind_of(output)
    if chosen == "jsonl":
        if letters:
            Out(sys.stdout.buffer, sys.stdout.isatty()).write([orjson.dumps(as_json(letter)) for letter in letters])
        return
    table = pa.Table.from_pylist([_row(letter) for letter in letters], _TABLE)
    shown = [n for n in _TABLE.names if n in _ALWAYS or any(value for value in table.column(n).to_pylist())]
    print_table(table.select(_TABLE.names if chosen == "csv" else shown), chosen, keys=["id"])


def as_json(letter: StoredMessage) -> dict[str, Any]:
    """All of a message: a body that is JSON as it is, other text as text."""
    dead = letter.dead
    said = {
        "id": letter.id,
        "key": letter.key,
        "route": letter.route or None,
        "priority": letter.priority or None,
        "attempt": letter.attempt,
        "sent": text(letter.delivery.sent),
        "origin": letter.origin,
        "headers": _headers(letter) or None,
        "dead": dead and {"queue": dead.queue, "reason": dead.reason, "count": dead.count, "origin": dead.origin, "at": dead.at},
    }
    return {name: value for name, value in said.items() if value is not None} | {"body": _value(letter.body)}


def _value(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return readable(body)


def _headers(letter: StoredMessage) -> dict[str, str | None]:
    from penstock.queue.dead_letters import HEADER

    return {name: readable(value) for name, value in letter.headers.items() if name != HEADER}


def _row(letter: StoredMessage) -> dict[str, Any]:
    return {
        "id": letter.id,
        "key": letter.key,
        "route": letter.route,
        "priority": letter.priority,
        "attempt": letter.attempt,
        "sent": letter.sent,
        "headers": list(_headers(letter).items()),
        "body": readable(letter.body),
        "died_in": letter.dead.queue if letter.dead else None,
        "reason": first_reason(letter),
    }


def first_reason(letter: StoredMessage) -> str | None:
    """The first line of why it is dead."""
    return letter.dead.reason.splitlines()[0] if letter.dead and letter.dead.reason else None


def condition(where: str | None) -> Callable[[StoredMessage], bool] | None:
    """Whether a condition in SQL holds: on fields of a JSON body, and id, key, route, attempt, reason, died_in."""
    if where is None:
        return None
    found = Condition(where, [])

    def holds(letter: StoredMessage) -> bool:
        fields, dead = as_object(letter.body), letter.dead
        said: dict[str, Any] = {"id": letter.id, "key": letter.key, "route": letter.route, "attempt": letter.attempt}
        said |= {"reason": dead and dead.reason, "died_in": dead and dead.queue}
        for name, value in said.items():
            fields[free_name(name, fields)] = value
        table = pa.table({name: [value] for name, value in fields.items() if name in found.columns} or {"": [None]})
        return len(found.places(table)) == 1

    return holds


def edit(settings: Sequence[str]) -> Callable[[StoredMessage], dict[str, Any]] | None:
    """`field=value`, each: sets it in a JSON body. The value is read as JSON where it is any; `a.b` is the field b in a."""
    if not settings:
        return None
    changes = [_change(setting) for setting in settings]

    def edited(letter: StoredMessage) -> dict[str, Any]:
        body = letter.json()
        for path, value in changes:
            _set(body, path, value, letter.id)
        found: dict[str, Any] = body
        return found

    return edited


def _change(setting: str) -> tuple[list[str], Any]:
    name, equals, value = setting.partition("=")
    if not equals or not all(name.split(".")):
        raise BadInput(f"--set {setting!r} sets nothing", hint="write it like --set to=ann@example.com or --set customer.id=7")
    try:
        return name.split("."), orjson.loads(value)
    except orjson.JSONDecodeError:
        return name.split("."), value


def _set(body: Any, path: Sequence[str], value: Any, id: str) -> None:
    *before, last = path
    for name in before:
        body = body.setdefault(name, {}) if isinstance(body, dict) else None
    if not isinstance(body, dict):
        raise BadInput(f"message {id} has no place for {'.'.join(path)}: it is no JSON object there", hint="choose with --where")
    body[last] = value
