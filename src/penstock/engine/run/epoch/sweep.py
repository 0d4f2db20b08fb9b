"""Step 6, Sweep: decisions that are no longer kept go, and the files that only they named."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.engine.run.epoch.history import keep_marks
from penstock.engine.run.epoch.holds import first_held
from penstock.engine.state.runs import CARRIED
from penstock.storage.port import Storage

_STAGED = "staged"
KEEP = 16  # decided epochs that stay, for time travel and for refilling a lost store


class Sweeper:
    """Removes decisions beyond the last KEEP, and the files that only they named. One that a sink has not got yet, or that is
    held, stays, with its staged files, but not its state."""

    def __init__(self, storage: Storage, decisions: Decisions, keep: int = KEEP) -> None:
        self.storage, self.decisions, self.keep = storage, decisions, keep
        self.files: dict[int, set[str]] = {}
        self.named: Counter[str] = Counter()  # how many decisions name a file
        self.orphans_gone = False

    def load(self) -> None:
        self.files, self.named = {}, Counter()
        for epoch in self.decisions.epochs():
            self.note(self.decisions.read(epoch))

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
        if decision.epoch not in self.files:
            self.files[decision.epoch] = decision.files()
            self.named.update(self.files[decision.epoch])

    def sweep(self, decision: Decision, delivered: int) -> None:
        self.note(decision)
        held = first_held(self.storage)  # what is behind it stays, and the marks of what goes lie before it
        delivered = delivered if held is None else min(delivered, held - 1)
        for epoch in sorted(self.files):
            if epoch > decision.epoch - self.keep:
                break
            if epoch <= delivered:
                keep_marks(self.storage, self.decisions.read(epoch))
                self.decisions.forget(epoch)
                self._let_go(self.files.pop(epoch))
            else:
                state = {path for path in self.files[epoch] if not path.startswith(f"{_STAGED}/")}
                self.files[epoch] -= state
                self._let_go(state)
        for name in self.storage.list(_STAGED):
            if name.endswith(CARRIED) and _epoch_of(name) <= decision.epoch:
                self.storage.remove(f"{_STAGED}/{name}", durable=False)
        if not self.orphans_gone:
            self._remove_orphans(decision.epoch)
            self.orphans_gone = True

    def _let_go(self, files: set[str]) -> None:
        """Of one decision: those that no other one names are removed."""
        self.named.subtract(files)
        for path in files:
            if not self.named[path]:
                del self.named[path]
                self.storage.remove(path, durable=False)

    def _remove_orphans(self, decided: int) -> None:
        """Files of attempts that were never decided. Only after this driver's own first decision: until then an older driver
        that was paused might still win, and its decision would name them. And none of a later epoch: should this driver have been
        replaced without knowing, they are its successor's."""
        steps = [f"state/{step}" for step in self.storage.list("state")]
        for directory in [_STAGED, *steps]:
            for name in self.storage.list(directory):
                if f"{directory}/{name}" not in self.named and _epoch_of(name) <= decided:
                    self.storage.remove(f"{directory}/{name}", durable=False)


def _epoch_of(name: str) -> int:
    """The epoch for which a file was written; of any other file, one before all."""
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else -1
