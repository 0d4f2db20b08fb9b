"""Step 6, Sweep: decisions that are no longer kept go, and the files that only they named."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.engine.run.epoch.history import keep_marks
from penstock.engine.state.runs import CARRIED
from penstock.storage.port import Storage

KEEP = 16  # decided epochs that stay, for time travel and for refilling a lost store


class Sweeper:
    """Removes decisions beyond the last KEEP, and the files that only they named."""

    def __init__(self, storage: Storage, decisions: Decisions, keep: int = KEEP) -> None:
        self.storage, self.decisions, self.keep = storage, decisions, keep
        self.files: dict[int, set[str]] = {}
        self.orphans_gone = False

    def load(self) -> None:
        self.files = {epoch: self.decisions.read(epoch).files() for epoch in self.decisions.epochs()}

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """An epoch that fails before it is decided leaves files: they go after the next one."""
        try:
            yield
        except BaseException:
            self.orphans_gone = False
            raise

    def note(self, decision: Decision) -> None:
        """What a decision names stays, from the moment it is made."""
        self.files[decision.epoch] = decision.files()

    def sweep(self, decision: Decision, delivered: int) -> None:
        self.note(decision)
        for epoch in sorted(self.files):
            if epoch > min(delivered, decision.epoch - self.keep):
                break
            keep_marks(self.storage, self.decisions.read(epoch))
            self.decisions.forget(epoch)
            for path in self.files.pop(epoch) - set().union(*self.files.values()):
                self.storage.remove(path, durable=False)
        for name in self.storage.list("staged"):
            if name.endswith(CARRIED) and _epoch_of(name) <= decision.epoch:
                self.storage.remove(f"staged/{name}", durable=False)
        if not self.orphans_gone:
            self._remove_orphans(decision.epoch)
            self.orphans_gone = True

    def _remove_orphans(self, decided: int) -> None:
        """Files of attempts that were never decided. Only after this driver's own first decision: until then an older driver
        that was paused might still win, and its decision would name them. And none of a later epoch: should this driver have been
        replaced without knowing, they are its successor's."""
        named = set().union(*self.files.values())
        steps = [f"state/{step}" for step in self.storage.list("state")]
        for directory in ["staged", *steps]:
            for name in self.storage.list(directory):
                if f"{directory}/{name}" not in named and _epoch_of(name) <= decided:
                    self.storage.remove(f"{directory}/{name}", durable=False)


def _epoch_of(name: str) -> int:
    """The epoch for which a file was written; of any other file, one before all."""
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else -1
