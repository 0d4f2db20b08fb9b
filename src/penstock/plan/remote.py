"""Who is asked by a lookup, as a value: plans show it, tasks are sent it, and open it where they run."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from penstock.plan.rows import Lookup

Asked = list[dict[str, Any]]
Answers = list[dict[str, Any] | Exception | None]


class Questions(Protocol):
    """A way to whoever is asked, open."""

    def __call__(self, keys: Asked) -> Answers:
        """For each key, all of which differ, the columns of its answer, None where there is none, or why it cannot be used.
        Whatever it raises is tried again, with a way opened anew; BadFlow is not."""
        ...

    def close(self) -> None: ...


class Remote(ABC):
    """A store that is asked by key. A frozen value without secrets: passwords are named in it, and read where it is opened."""

    key: tuple[str, ...]  # the store's columns, in the order of the lookup's; (): called as they are there, or not named at all

    @property
    @abstractmethod
    def called(self) -> str:
        """For people: table users of PostgreSQL db.example:5432/shop."""

    @abstractmethod
    def open(self, lookup: "Lookup") -> Questions:
        """Called in the process of a task, and again after an error."""
