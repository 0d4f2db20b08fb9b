"""Names of topics, flows, views and steps: an allow-list, so that a name is always a safe file name."""

import re

from penstock.errors import BadName

_ALLOWED = re.compile(r"[a-zA-Z0-9._-]{1,200}", re.ASCII)
_COLUMN = re.compile(r"[^\W\d]\w{0,126}")
RESERVED_PREFIX = "__"


def check_name(name: str, what: str = "topic") -> str:
    """The name, if letters, digits, `.`, `_` and `-` are all it has; else BadName."""
    if not isinstance(name, str) or not _ALLOWED.fullmatch(name) or name.startswith(".") or name.endswith("."):
        shown = ascii(name) if len(str(name)) <= 60 else ascii(str(name)[:60]) + "…"
        raise BadName(
            f"{shown} cannot name a {what}",
            hint="use letters, digits, '.', '_' and '-', at most 200 of them, not starting or ending with a dot",
        )
    return name


def check_column(name: str) -> str:
    """The column name, if it is a word that SQL and Python can both say; else BadName."""
    if not isinstance(name, str) or not _COLUMN.fullmatch(name) or name.startswith(RESERVED_PREFIX):
        raise BadName(
            f"{name!a} cannot name a column",
            hint=f"use letters, digits and '_', not starting with a digit or with {RESERVED_PREFIX!r}",
        )
    return name
