"""penstock events, command by command, as a user calls it."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.events import EventStore
from penstock.log.open import open_log
from unit.cli.calling import Call, calls_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "cart" / "cart.py"
BEFORE = "2024-01-15T10:05:00Z"


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    return calls_of("events")


@pytest.fixture
def store(call: Call, monkeypatch: pytest.MonkeyPatch) -> EventStore:
    """Two carts; one of them in two visits."""
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    from cart import EVENTS, ItemAdded, ItemRemoved

    store = EventStore.open("carts", EVENTS)
    store.append("cart-1", [ItemAdded("A"), ItemAdded("B")], at="2024-01-15T10:00:00Z", who="ann", correlation="visit-1")
    store.append("cart-1", [ItemRemoved("A")], at=BEFORE, who="bob")
    store.append("cart-2", [ItemAdded("C", 3)], at="2024-01-15T10:06:00Z")
    return store


def test_streams_lists_them(call: Call, store: EventStore) -> None:
    rows = call("streams").rows
    assert [(row["stream"], row["events"], row["version"]) for row in rows] == [("cart-1", 3, 3), ("cart-2", 1, 1)]
    assert (rows[0]["first"], rows[0]["last"]) == ("2024-01-15T10:00:00Z", BEFORE)
    assert "cart-2" in call("streams", "--output", "table").out


def test_show_prints_events_as_they_are_stored(call: Call, store: EventStore) -> None:
    rows = call("show", "cart-1", "--from", "2").rows
    assert [(row["version"], row["event"], row["who"], row["offset"]) for row in rows] == [
        (2, "ItemAdded", "ann", 1),
        (3, "ItemRemoved", "bob", 2),
    ]
    assert rows[0]["data"] == '{"item":"B","quantity":1}'
    assert call("show", "cart-1", "--to", "1", "--output", "csv").out.splitlines()[0].startswith("version,at,event")


def test_state_is_that_of_any_moment(call: Call, store: EventStore) -> None:
    of = ["--of", str(EXAMPLE)]
    assert call("state", "cart-1", *of).rows == [{"items": {"B": 1}, "checked_out": False}]
    assert call("state", "cart-1", *of, "--at", BEFORE).rows[0]["items"] == {"A": 1, "B": 1}
    assert call("state", "cart-1", "--of", f"{EXAMPLE}:Cart", "--version", "1").rows[0]["items"] == {"A": 1}
    table = call("state", "cart-1", *of, "--output", "table").out
    assert "items.B" in table
    assert call("state", "cart-1", *of, "--version", "9").code == 3


def test_history_says_who_did_what(call: Call, store: EventStore) -> None:
    rows = call("history", "cart-1", "--of", str(EXAMPLE)).rows
    assert [(row["who"], row["event"], row["changes"]) for row in rows] == [
        ("ann", "ItemAdded", "items.A: ∅ → 1"),
        ("ann", "ItemAdded", "items.B: ∅ → 1"),
        ("bob", "ItemRemoved", "items.A: 1 → ∅"),
    ]
    assert rows[0]["correlation"] == "visit-1"
    assert [row["changes"] for row in call("history", "cart-1").rows] == [None] * 3


def test_an_exported_test_runs(call: Call, store: EventStore, tmp_path: Path) -> None:
    file = tmp_path / "test_cart_1.py"
    answer = call("export", "cart-1", "--of", str(EXAMPLE), "--as-test", "--to", str(file))
    assert (answer.code, "3 events of cart-1" in answer.err) == (0, True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(EXAMPLE.parent), "PATH": ""})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    listed = call("export", "cart-1", "--of", str(EXAMPLE)).out
    assert "    ItemAdded(item='A', quantity=1),\n" in listed


def test_verify_reads_everything(call: Call, store: EventStore) -> None:
    answer = call("verify")
    assert (answer.code, answer.out) == (
        0,
        "carts: 2 streams, 4 events; versions are dense, ids unique, and the index is the log's\n",
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["show", "cart-9"], 3, "no stream 'cart-9'"),
        (["streams", "--store", "orders"], 3, "orders"),
        (["state", "cart-1", "--of", "nowhere.py"], 3, "no file nowhere.py"),
        (["state", "cart-1", "--of", f"{EXAMPLE}:Basket"], 3, "no class 'Basket'"),
        (["state", "cart-1"], 2, "--of"),
        (["state", "cart-1", "--of", str(EXAMPLE), "--at", "then"], 2, "cannot read time 'then'"),
        (["state", "cart-1", "--of", str(EXAMPLE), "--at", BEFORE, "--version", "1"], 2, "not at both"),
    ],
)
def test_what_cannot_be_shown_is_said(call: Call, store: EventStore, words: list[str], code: int, said: str) -> None:
    answer = call(*words)
    assert answer.code == code
    assert said in answer.err


def test_without_a_store_or_with_several_it_asks_for_one(call: Call) -> None:
    assert call("streams").code == 3
    for name in ("carts", "orders"):
        EventStore.open(name)
    answer = call("streams")
    assert (answer.code, "--store carts" in answer.err) == (2, True)
    assert "nothing was appended" in call("streams", "--store", "orders").err
    assert call("verify").out.count("0 streams") == 2
    assert open_log().topics() == ["carts", "orders"]


def test_a_file_without_a_class_that_folds_is_said(call: Call, store: EventStore, tmp_path: Path) -> None:
    for text, said in (
        ("x = 1", "no class that folds"),
        ("class A:\n  def apply(self, e): ...\nclass B(A): ...", "several classes"),
    ):
        file = tmp_path / "found.py"
        file.write_text(text)
        assert said in call("state", "cart-1", "--of", str(file)).err
