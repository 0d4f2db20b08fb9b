"""Bugs on purpose: the tests of queues on a disk that fails find each of them."""

from collections.abc import Callable

import pytest

from faults.queue_ledger import power_losses
from penstock.errors import Damaged
from penstock.queue.on_log import events, journal, shared_journal
from penstock.queue.on_log import queue as log_queue
from penstock.queue.on_log.journal import Journal
from penstock.queue.on_log.shared_journal import SharedJournal
from penstock.queue.on_log.state import LogQueueState

pytestmark = pytest.mark.faults
Patch = pytest.MonkeyPatch


def acknowledged_before_it_is_safe(patch: Patch) -> None:
    patch.setattr(Journal, "sync", lambda self, written: None)


def dead_before_its_number_is_safe(patch: Patch) -> None:
    store = SharedJournal._store_dead_letters
    patch.setattr(SharedJournal, "_store_dead_letters", lambda self, state, written: store(self, state, None))


def dead_under_no_number(patch: Patch) -> None:
    patch.setattr(log_queue, "Sender", lambda *words, **more: None)


def new_files_without_what_is_leased(patch: Patch) -> None:
    whole = events.encode_snapshot

    def cut(state: LogQueueState) -> list[object]:
        kind, data = whole(state)
        data["book"]["items"] = [row for row in data["book"]["items"] if row[9] != 3]
        return [kind, data]

    patch.setattr(events, "encode_snapshot", cut)


def torn_records_are_believed(patch: Patch) -> None:
    patch.setattr(journal, "crc32c", lambda data, start=0: 0)


def the_end_is_not_cut(patch: Patch) -> None:
    patch.setattr(journal, "_end", len)


BUGS: dict[str, Callable[[Patch], None]] = {
    "acknowledged before it is safe": acknowledged_before_it_is_safe,
    "dead before its number is safe": dead_before_its_number_is_safe,
    "dead under no number": dead_under_no_number,
    "new files without what is leased": new_files_without_what_is_leased,
    "torn records are believed": torn_records_are_believed,
    "the end is not cut": the_end_is_not_cut,
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_wrong_journal_is_caught(bug: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(shared_journal, "ROLL", 1_500)
    BUGS[bug](monkeypatch)
    with pytest.raises((AssertionError, Damaged, KeyError, ValueError)):
        [power_losses(seed, steps=40) for seed in range(60)]
