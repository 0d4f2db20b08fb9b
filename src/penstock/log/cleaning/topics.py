"""All topics of a log, cleaned in turn: what `penstock run` does in the background and `penstock topic clean` at once."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from penstock.core.time import duration_text
from penstock.errors import NotFound, PenstockError
from penstock.log.cleaning.partition import Cleaned
from penstock.log.holding import Holds, nobody
from penstock.log.port import Log, TopicSpec

Say = Callable[[str], None]


@runtime_checkable
class Cleanable(Protocol):
    """A log that cleans its topics itself; a broker of its own cleans by its own rules."""

    def clean(self, name: str, holds: Holds = nobody, *, eager: bool = True) -> Sequence[Cleaned]:
        """Lets go what retention says, compacts, and rewrites closed segments. Safe beside readers, writers and other cleaners.

        eager: compacts whatever there is to compact, not only once it is worth it. Partitions that somebody else is cleaning are
        left out of the answer."""
        ...


def clean_topics(log: Log, holds: Holds = nobody, say: Say = lambda text: None, *, eager: bool = False) -> list[Cleaned]:
    """Cleans every topic as far as it is worth it. An error in one is reported, and the others are cleaned all the same."""
    done: list[Cleaned] = []
    if not isinstance(log, Cleanable):
        return done
    for name in log.topics():
        try:
            found = log.clean(name, holds, eager=eager)
            spec = log.topic(name).spec
        except NotFound:
            continue  # deleted meanwhile
        except PenstockError as error:
            say(f"topic {name} could not be cleaned: {error.what}")
            continue
        done += found
        for one in found:
            for text in warnings(one, spec):
                say(text)
    return done


def warnings(cleaned: Cleaned, spec: TopicSpec) -> list[str]:
    """What people must hear: records that were removed before somebody read them."""
    return [
        f"topic {cleaned.topic}, partition {cleaned.partition}: offsets {lost.first} to {lost.end - 1} were removed although "
        f"{lost.reader} has not read them: they were held for {duration_text(spec.hold)} beyond their time (topic alter --hold)"
        for lost in cleaned.lost
    ]
