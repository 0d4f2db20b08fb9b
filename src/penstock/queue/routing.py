"""Which messages a binding takes: by words of the route, and by headers."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from penstock.errors import BadInput
from penstock.queue.port import Binding

_WORD = re.compile(r"[^.*#\s]{1,255}")
FOR = "penstock-for"  # of a message that comes back: the one queue of its source that takes it, whatever its bindings say
LONGEST = 255  # bytes of a route, as AMQP has it


def check_route(route: str, pattern: bool = False) -> str:
    """The route, if it is words with dots between them; of a pattern, `*` and `#` may stand for words."""
    words = route.split(".") if route else []
    if len(route.encode()) > LONGEST or any(not _WORD.fullmatch(w) and not (pattern and w in ("*", "#")) for w in words):
        what = "a pattern of routes" if pattern else "a route"
        hint = (
            'words with dots between them, such as "orders.*.eu"; * is one word, # any number'
            if pattern
            else "write it like orders.new.eu"
        )
        raise BadInput(f"{route!a} cannot be {what}", hint=hint)
    return route


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
    return pattern == "#" or _words_match(pattern.split(".") if pattern else [], route.split(".") if route else [])


def _words_match(pattern: Sequence[str], words: Sequence[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_words_match(pattern[1:], words[taken:]) for taken in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _words_match(pattern[1:], words[1:])
