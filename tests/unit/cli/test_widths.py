"""Every command that prints a table, on terminals of several widths: keys are there, numbers whole, what is left out is named."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pytest

from faults.engine_shop import drained
from penstock import Flow, Producer, Schema, TopicSpec
from penstock.cli.main import COMMANDS, cli
from penstock.events import EventStore
from penstock.log.groups.port import Source
from penstock.log.open import open_log
from penstock.sinks import search
from penstock.testing.contracts.events.samples import EVENTS, ItemAdded
from store_epochs import Epochs, spec_of
from unit.cli.calling import calls_of
from unit.cli.looking import flow_file, run_flow

WIDTHS = (40, 60, 80, 110)
BIG = 9_007_199_254_740_993
CART = Path(__file__).parents[3] / "examples" / "cart" / "cart.py"
ROW = "2024-01-15T10:00:00Z", "the-page-of-ann-and-bob"
TABLES = {  # what is called, and what must stand there whatever the width
    "topic list": ("topic list", "views"),
    "topic describe": ("topic describe views", "partition"),
    "topic consume": ("topic consume views", "offset"),
    "group list": ("group list", "readers"),
    "group describe": ("group describe readers", "views"),
    "group reset": ("group reset readers views --to earliest", "partition"),
    "queue list": ("queue list", "emails"),
    "queue describe": ("queue describe emails", "emails"),
    "queue receive": ("queue receive emails", "id-1010"),
    "queue peek": ("queue peek emails", "id-1010"),
    "queue move": ("queue move emails parked --dry-run", "id-1010"),
    "queue redrive": ("queue redrive emails.dead --dry-run", "id-2020"),
    "events streams": ("events streams", "cart-1010"),
    "events show": ("events show cart-1010", "ItemAdded"),
    "events state": (f"events state cart-1010 --of {CART}", "items.lamp"),
    "events history": (f"events history cart-1010 --of {CART}", "version"),
    "view list": ("view list", "per_page"),
    "view show": ("view show per_page", *ROW),
    "view get": (f"view get per_page {ROW[0]} {ROW[1]} --history", *ROW),
    "cdc check": None,  # sentences, and these need a database: tests/contract/test_cdc_commands.py shows them on 80 columns
    "cdc status": None,
    "cdc reconcile": None,
    "view follow": None,  # never ends; the same rows as `view show`
    "sink list": ("sink list", "pages", "view.per_page"),
    "sink reconcile": None,  # tests/unit/cli/test_sink_in_step.py shows them on 80 columns
    "sink rebuild": None,
    "search": ("search pages bob", "ann"),
    "state show": ("state show pages per_page open", "page"),
    "state path": ("state path pages per_page", "open"),
    "fates": ("fates pages", "pages", "per_page"),
    "epochs": ("epochs pages", "epoch"),
    "flow list": ("flow list", "pages"),
    "flow describe": ("flow describe pages", "views"),
    "flow reset": ("flow reset pages", "per_page"),
    "flow drop": ("flow drop pages", "per_page"),
    "flow reopen": ("flow reopen failing", "failing"),
    "dead list": ("dead list failing", "failing"),
    "dead show": ("dead show failing", "failing.dead"),
    "dead redrive": ("dead redrive failing --dry-run", "views"),
}


def with_tables(command: click.Command, name: str = "") -> Iterator[str]:
    """The commands that have an option for tables."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in COMMANDS if command is cli else command.list_commands(context):
            found = command.get_command(context, word)
            assert found is not None
            yield from with_tables(found, f"{name} {word}".strip())
    elif any("table" in getattr(p.type, "choices", ()) for p in command.params):
        yield name


def test_every_command_that_prints_tables_is_tried_here() -> None:
    assert set(with_tables(cli)) == set(TABLES)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home: Path = tmp_path_factory.mktemp("home")
    log = open_log(home)
    topic = log.create(TopicSpec("views", 1, Schema.of("page string, ms long, at timestamp"), "at"))
    with Producer(topic, batch_rows=1) as producer:
        for second in (1, 2, 30):
            producer.send({"page": ROW[1], "ms": BIG + second, "at": f"2024-01-15T10:00:{second:02}Z"})
    run_flow(home, flow_file(home))
    _end_failing(home)
    _fill_search(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_HOME", str(home))
        _fill_groups_and_queues()
        EventStore.open("carts", EVENTS).append("cart-1010", [ItemAdded("lamp", BIG)], who="ann-of-the-shop-in-the-street")
    return home


def _end_failing(home: Path) -> None:
    """A flow that fails on every row, drained."""

    def fails(rows: pa.Table) -> pa.Table:
        raise ValueError("because 123456789 was wrong")

    flow = Flow("failing")
    views = flow.stream("views", "page string, ms long, at timestamp", time="at", lateness="4 seconds")
    views.map_arrow(fails, "page string", name="never").view("nothing")
    drained(home, flow)


def _fill_search(home: Path) -> None:
    epochs = Epochs(search("pages").build, spec_of("pages", "page string, ms long", "page"), views=home / "views")
    epochs.give({"page": "ann and bob", "ms": BIG})


def _fill_groups_and_queues() -> None:
    call = calls_of("queue")
    for words in ("create emails", "create parked"):
        assert call(*words.split()).code == 0
    long = '{"to": "ann", "number": 123456789012345, "text": "' + "words and words " * 20 + '"}'
    assert call("send", "emails", long, "--id", "id-2020").code == 0
    assert call("receive", "emails", "--reject", "--reason", "because 123456789 was wrong").code == 0
    assert call("send", "emails", long, "--id", "id-1010").code == 0
    log = open_log()
    topic = log.topic("views")
    log.groups().put("readers", Source("views", topic.id, 1), {0: 1})


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [name for name, tried in TABLES.items() if tried])
def test_keys_are_shown_and_numbers_are_whole(name: str, width: int, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, *always = TABLES[name] or ()
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    call = calls_of(*words.split(), "--output", "table")
    monkeypatch.setenv("COLUMNS", "3000")
    wide = call()
    monkeypatch.setenv("COLUMNS", str(width))
    narrow = call()
    assert wide.code == narrow.code == 0, wide.err
    text = re.sub(r"\s+", "", narrow.out)
    assert all(part in text for word in always for part in parts(word)), narrow.out
    moving = "lag_seconds|oldest_seconds|in_hand"
    if not re.search(moving, wide.out):
        assert numbers(narrow.out) <= numbers(wide.out), f"{narrow.out}\n{wide.out}"
    for column in wide.out.splitlines()[0].split():
        assert all(part in text for part in parts(column)), f"{column} is neither shown nor named:\n{narrow.out}"


def parts(text: str) -> list[str]:
    """What is not broken over lines."""
    return re.split(r"(?<=[_./:@-])", text)


def numbers(shown: str) -> set[str]:
    """All that reads as a number; columns not shown are counted in the last line."""
    return set(re.findall(r"\d+", re.sub(r"\n\(\d+ columns? not shown.*", "", shown)))
