"""Hostile names of flows, steps, views and topics, at every door: refused, and nothing is written or removed anywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Flow, Tumbling, agg
from penstock.cli.main import run
from penstock.errors import BadInput
from penstock.flow.stream import Stream

pytestmark = pytest.mark.faults

HOSTILE = [
    "",
    " ",
    ".",
    "..",
    "../x",
    "../../outside",
    "x/../../outside",
    "x/y",
    "/etc/passwd",
    "//x",
    "..\\x",
    "C:\\x",
    "~",
    "$(id)",
    "`id`",
    "x;id",
    "x\0y",
    "x\n",
    "\x1b[2J",
    "%2e%2e",
    "%2e%2e%2fx",
    "x.",
    ".hidden",
    "x" * 201,
    "x" * 5000,
    "ｘ",
    "x\u202ey",
    "x y",
    'x"; DROP TABLE y; --',
    "__import__('os')",
]
COLUMNS = "key string, at timestamp"


def rows_of(flow: Flow) -> Stream:
    return flow.stream("orders", COLUMNS, time="at", lateness="1 second")


def same(rows: pa.Table) -> pa.Table:
    return rows


DOORS: dict[str, Callable[[str], Any]] = {
    "flow": lambda name: Flow(name),
    "topic read": lambda name: Flow("f").stream(name, COLUMNS),
    "name of a stream": lambda name: Flow("f").stream("orders", COLUMNS, name=name),
    "topic written": lambda name: rows_of(Flow("f")).to(name),
    "name of what is written": lambda name: rows_of(Flow("f")).to("out", name=name),
    "view": lambda name: rows_of(Flow("f")).view(name),
    "where": lambda name: rows_of(Flow("f")).where("key = 'a'", name=name),
    "map_arrow": lambda name: rows_of(Flow("f")).map_arrow(same, COLUMNS, name=name),
    "named": lambda name: rows_of(Flow("f")).select("key").named(name),
    "window": lambda name: rows_of(Flow("f")).window(Tumbling("1 minute"), by="key").agg(n=agg.count(), name=name),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_of_a_flow_lets_a_hostile_name_in(door: str) -> None:
    for name in [*HOSTILE, "x\ud800"]:
        with pytest.raises(BadInput) as refused:
            DOORS[door](name)
        assert "\x1b" not in str(refused.value)


def everything(place: Path) -> dict[str, bytes]:
    return {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()}


COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "fates": lambda name: ["fates", "--", name],
    "why": lambda name: ["why", "--", name, "0", "0"],
    "epochs": lambda name: ["epochs", "--", name],
    "view show": lambda name: ["view", "show", "--", name],
    "view show --open": lambda name: ["view", "show", "--open", "--", name],
    "view get": lambda name: ["view", "get", "--", name, "key"],
    "view follow": lambda name: ["view", "follow", "--", name],
    "view drop": lambda name: ["view", "drop", "--yes", "--", name],
    "run": lambda name: ["run", "--catch-up", "--", name],
    "check": lambda name: ["check", "--", name],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_follows_a_hostile_name(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    home = tmp_path / "deep" / "home"
    (home / "flows").mkdir(parents=True)
    (home / "views").mkdir()
    for outside in (tmp_path / "outside", tmp_path / "outside.db", tmp_path / "deep" / "x.db", tmp_path / "deep" / "x"):
        outside.write_text("not yours")
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    monkeypatch.chdir(tmp_path / "deep")
    before = everything(tmp_path)
    for name in HOSTILE:
        assert run(COMMANDS[command](name)) in (1, 2, 3), name
        said = capsys.readouterr()
        assert "not yours" not in said.out + said.err
        assert "\x1b" not in said.out + said.err
        assert "unexpected error" not in said.err, (name, said.err)
    assert everything(tmp_path) == before
