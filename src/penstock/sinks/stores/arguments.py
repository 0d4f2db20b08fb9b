"""What users give the definitions of stores, checked."""

from collections.abc import Iterable
from typing import Any, Literal, get_args

from penstock.errors import BadInput

OnError = Literal["dead", "stop"]  # what becomes of a row that the store refuses
OnConflict = Literal["update", "ignore"]  # what becomes of a row whose key is there


def one_of(what: str, given: str, allowed: Any) -> None:
    """Refuses what is not among the words of this Literal."""
    words = get_args(allowed)
    if given not in words:
        raise BadInput(f"{what}={given!r} is not known", hint=f"use {' or '.join(map(repr, words))}")


def names(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Columns as a user names them: one, several, or none."""
    return given if given is None else (given,) if isinstance(given, str) else tuple(given)
