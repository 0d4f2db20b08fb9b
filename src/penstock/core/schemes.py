"""What a URL leads to, by its scheme: what Penstock brings, and what other packages add."""

from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.errors import AlreadyThere, BadInput

T = TypeVar("T")


class Schemes(Generic[T]):
    """What opens a URL, by scheme. Other packages add theirs with `add`, or name them in an entry point of this group."""

    def __init__(self, what: str, group: str, hint: str) -> None:
        self._what, self._group, self._hint = what, group, hint
        self._known: dict[str, Callable[[], T]] = {}

    def add(self, scheme: str, load: Callable[[], T]) -> None:
        """load: gives what opens URLs of this scheme; called when the first one is opened."""
        if scheme in self._known:
            raise AlreadyThere(f"scheme {scheme!r} of {self._what} is taken", hint="choose another one")
        self._known[scheme] = load

    def find(self, url: str) -> T:
        """What opens this URL; BadInput if nobody does."""
        scheme = url.partition(":")[0]
        if scheme in self._known:
            return self._known[scheme]()
        from importlib.metadata import entry_points  # not cheap, and rarely asked for

        for point in entry_points(group=self._group, name=scheme):
            found: T = point.load()
            return found
        raise BadInput(f"that is not an address of {self._what}", hint=self._hint)
