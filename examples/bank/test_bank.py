"""No money is lost or made by eight writers, some of whom are killed; the books say where every cent went."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from penstock.events import EventStore
from penstock.events.on_log.streams import LogStreams
from penstock.events.on_log.verifying import verify

HERE = Path(__file__).parent
START = 100  # cents of each account


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(HERE)
    yield import_module("bank")
    for name in ("bank", "transfers"):
        sys.modules.pop(name, None)


@pytest.fixture
def store(bank: Any) -> EventStore:
    store = EventStore.open("bank", bank.EVENTS)
    for account in import_module("transfers").ACCOUNTS:
        bank.open_account(store, account, f"owner of {account}", START)
    return store


def check_books(bank: Any, store: EventStore) -> set[str]:
    """Nothing lost, nothing overdrawn at any moment, both sides of every transfer there once; the transfers."""
    assert isinstance(store.port, LogStreams)
    assert verify(store.port).wrong == []
    accounts = [info.stream for info in store.streams()]
    assert sum(store.load(bank.Account, account).cents for account in accounts) == START * len(accounts)
    sent, received = list[str](), list[str]()
    for account in accounts:
        for step in store.history(bank.Account, account):
            balance = [change.after for change in step.changes if change.path == "cents"]
            assert all(cents >= 0 for cents in balance), f"{account} is overdrawn at version {step.recorded.version}"
            event = step.recorded.event
            sent += [event.transfer] if isinstance(event, bank.Sent) else []
            received += [event.transfer] if isinstance(event, bank.Received) else []
    assert sorted(sent) == sorted(received)
    assert len(set(sent)) == len(sent)
    return set(sent)


def test_eight_threads_lose_no_money(bank: Any, store: EventStore) -> None:
    transfers = import_module("transfers")
    threads = [threading.Thread(target=transfers.main, args=(f"writer-{number}", 8)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert check_books(bank, store)


def test_processes_that_are_killed_leave_no_half_transfer(bank: Any, store: EventStore) -> None:
    command = [sys.executable, str(HERE / "transfers.py")]
    writers = [subprocess.Popen([*command, f"p{number}", "1000"], stdout=subprocess.PIPE, text=True) for number in range(4)]
    told = set[str]()
    for writer in writers:
        assert writer.stdout
        told |= {writer.stdout.readline().strip() for _ in range(4)}
    for writer in writers:
        writer.kill()
        told |= {line.strip() for line in writer.communicate()[0].splitlines() if line.endswith("\n")}
    assert told <= check_books(bank, store)


def test_a_transfer_that_is_asked_for_twice_happens_once(bank: Any, store: EventStore) -> None:
    for _ in range(3):
        bank.transfer(store, "account-1", "account-2", 80, "rent")
    assert [store.load(bank.Account, f"account-{n}").cents for n in (1, 2)] == [20, 180]
    with pytest.raises(bank.Refused):
        bank.transfer(store, "account-1", "account-2", 80, "rent of next month")
    assert check_books(bank, store) == {"rent"}
