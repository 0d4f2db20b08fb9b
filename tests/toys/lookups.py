"""Somebody from outside to look rows up at: a value that opens itself where tasks run."""

from dataclasses import dataclass

from penstock.plan import Answers, Asked, Lookup, Questions, Remote


@dataclass(frozen=True)
class Multiples(Remote):
    """Knows the multiples of numbers above zero."""

    times: int

    key = ()

    @property
    def called(self) -> str:
        return f"multiples by {self.times}"

    def open(self, lookup: Lookup) -> Questions:
        return Asking(self.times, lookup.on[0])


class Asking:
    def __init__(self, times: int, column: str) -> None:
        self._times, self._column, self._open = times, column, True

    def __call__(self, keys: Asked) -> Answers:
        assert self._open
        return [{"found": self._times * key[self._column]} if key[self._column] > 0 else None for key in keys]

    def close(self) -> None:
        self._open = False
