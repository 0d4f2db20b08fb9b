"""Which messages a binding takes: by words of the route, and by headers."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from penstock.errors import BadInput
from penstock.queue.port import Binding

_WORD = re.compile(r"[^.*#\s\ud800-\udfff]{1,255}")  # no half of a surrogate pair: it cannot be written
FOR = "penstock-for"  # of a message that comes back: the one queue of its source that takes it, whatever its bindings say
LONGEST = 255  # bytes of a route, as AMQP has it
_KINDS = ("a route", "a pattern of routes")
_HINTS = (
    "words with dots between them, such as orders.new.eu",
    "words with dots between them, such as orders.*.eu; * is one word, # any number of them",
)


def check_route(route: str, pattern: bool = False) -> str:
    """The route, if it is words with dots between them; of a pattern, `*` and `#` may stand for words."""
    if not isinstance(route, str) or not all(_WORD.fullmatch(w) or (pattern and w in ("*", "#")) for w in _words(route)):
        raise BadInput(f"{str(route)[:60]!a} cannot be {_KINDS[pattern]}", hint=_HINTS[pattern])
    if len(route.encode()) > LONGEST:
        raise BadInput(f"{route[:60]!a}… is too long for {_KINDS[pattern]}", hint=f"at most {LONGEST} bytes")
    return route


def _words(route: str) -> list[str]:
    return route.split(".") if route else []


def takes(bindings: Sequence[Binding], route: str, headers: Mapping[str, bytes], name: str = "") -> bool:
    """Whether the queue of this name takes a message: one of its bindings fits, or it has none; or the message is for it alone."""
    if FOR in headers:
        return headers[FOR] == name.encode()
    return not bindings or any(fits(binding, route, headers) for binding in bindings)


def fits(binding: Binding, route: str, headers: Mapping[str, bytes]) -> bool:
    if not _matches(binding.route, route):
        return False
    if not binding.headers:
        return True
    found = (headers.get(name) == value for name, value in binding.headers.items())
    return any(found) if binding.any_header else all(found)


@lru_cache(4096)
def _matches(pattern: str, route: str) -> bool:
    return pattern == "#" or _words_match(_words(pattern), _words(route))


def _words_match(pattern: Sequence[str], words: Sequence[str]) -> bool:
    reached = {0}  # how many words what we have seen of the pattern may stand for
    for part in pattern:
        if part == "#":
            reached = set(range(min(reached, default=len(words) + 1), len(words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(words) and part in ("*", words[at])}
    return len(words) in reached
