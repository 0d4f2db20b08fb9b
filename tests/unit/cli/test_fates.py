"""penstock fates, as a user calls it: the books, and what another lateness would have made of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import run
from penstock.engine.diagnose.inspect import decisions_of
from unit.cli.looking import fill, flow_file, run_flow


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    fill(tmp_path / "home")
    return tmp_path / "home"


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_books_of_windows_side_by_side(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = flow_file(tmp_path)
    run_flow(home, file)
    assert run(["fates", file]) == 0
    told = {line["step"]: line for line in lines(capsys)}
    assert (told["slow"]["in"], told["slow"]["filtered"], told["slow"]["passed"]) == (6, 1, 5)
    assert (told["per_page"]["on time"], told["per_page"]["diverted"], told["per_page"]["balanced"]) == (3, 2, True)


def test_the_books_of_windows_that_overlap(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = flow_file(tmp_path, every="1 second")
    run_flow(home, file)
    assert run(["fates", "pages"]) == 0
    told = {line["step"]: line for line in lines(capsys)}["per_page"]
    assert {name: told[name] for name in ("in", "judged", "windows", "balanced")} == {
        "in": 5,
        "judged": 5,
        "windows": 25,
        "balanced": True,
    }
    assert told["on time"] + told["diverted"] == 25


@pytest.mark.parametrize("fate", ["judged", "diverted"])
def test_books_that_do_not_balance_end_with_4(fate: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_flow(home, flow_file(tmp_path, every="1 second"))
    decisions = decisions_of(home, "pages")
    last = decisions.last()
    assert last
    books = {step: dict(counts) for step, counts in last.fates.items()}
    books["per_page"][fate] -= 1
    decisions.publish(replace(last, epoch=last.epoch + 1, fates=books))
    assert run(["fates", "pages"]) == 4
    shown = capsys.readouterr()
    assert "the books do not balance:\n  pages, step per_page" in shown.err
    assert '"balanced":false' in shown.out


def test_another_lateness_is_shown_beside_the_flows_own(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = flow_file(tmp_path)
    assert run(["fates", file, "--lateness", "0 seconds", "--output", "jsonl"]) == 0
    shown = capsys.readouterr()
    now, other = [json.loads(line) for line in shown.out.splitlines()]
    assert (now["setting"], now["lateness"], now["on time"], now["late"]) == ("now", "4 seconds", 3, 2)
    assert (other["setting"], other["lateness"], other["on time"], other["late"]) == ("what if", "0 seconds", 3, 2)
    assert [now[f"keeps {share}"] for share in ("99 %", "99.9 %", "100 %")] == ["0 seconds"] * 3
    assert "per_page: 2 are late whatever the lateness: a mark stands before them" in shown.err


def test_on_a_terminal_it_is_short(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fates", flow_file(tmp_path), "--lateness", "1 minute", "--output", "table"]) == 0
    told = capsys.readouterr().out
    assert "flow pages" in told
    assert "corrected" not in told
    assert told.splitlines()[-1] == "per_page keeps 99 % with 0 seconds · 99.9 % with 0 seconds · 100 % with 0 seconds"


def test_another_lateness_needs_the_flows_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fates", "pages", "--lateness", "30 seconds"]) == 2
    assert 'give its file: penstock fates pages.py --lateness "30 seconds"' in capsys.readouterr().err


def test_a_lateness_that_cannot_be_read_is_told(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fates", flow_file(tmp_path), "--lateness", "soon"]) == 2
    assert "cannot read lateness 'soon'" in capsys.readouterr().err


def test_the_help_teaches_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fates", "--help"]) == 0
    assert 'penstock fates shop.py --lateness "30 seconds"' in capsys.readouterr().out


def test_the_books_tell_what_the_offsets_of_a_source_held(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_flow(home, flow_file(tmp_path))
    assert run(["fates", "pages"]) == 0
    told = {line["step"]: line for line in lines(capsys)}
    source = next(line for line in told.values() if line["offsets"] is not None)
    assert source["offsets"] == source["in"] > 0
    assert told["per_page"]["offsets"] is None


@pytest.mark.parametrize("what", ["absent", "rows"])
def test_offsets_that_are_not_accounted_for_end_with_4(
    what: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_flow(home, flow_file(tmp_path))
    decisions = decisions_of(home, "pages")
    last = decisions.last()
    assert last
    accounts = {source: dict(account) | {what: account.get(what, 0) + 1} for source, account in last.accounts.items()}
    decisions.publish(replace(last, epoch=last.epoch + 1, accounts=accounts))
    assert run(["fates", "pages"]) == 4
    assert "the books do not balance:\n  pages, source" in capsys.readouterr().err
    assert run(["doctor"]) == 4
    assert "do not balance: " in capsys.readouterr().out


def test_the_books_of_a_flow_that_did_not_count_offsets_yet_balance(home: Path, tmp_path: Path) -> None:
    run_flow(home, flow_file(tmp_path))
    decisions = decisions_of(home, "pages")
    last = decisions.last()
    assert last
    decisions.publish(replace(last, epoch=last.epoch + 1, accounts={}))
    assert run(["fates", "pages"]) == 0
