"""`penstock search`, as a user calls it."""

from pathlib import Path

import pytest

from penstock.sinks import search
from store_epochs import Epochs, spec_of
from unit.cli.calling import calls_of

call = calls_of("search")


@pytest.fixture(autouse=True)
def products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    epochs = Epochs(search("products").build, spec_of("products", "id int, title string", "id"), views=tmp_path / "views")
    epochs.give({"id": 1, "title": "red shoes"}, {"id": 2, "title": "red \x1b[31mhat"})


def test_rows_are_printed_as_lines_of_json() -> None:
    assert call("products", "shoes").rows == [{"id": 1, "title": "red shoes"}]
    assert call("products", "red", "shoes").rows == [{"id": 1, "title": "red shoes"}]
    assert len(call("products", "red", "--limit", "1").rows) == 1
    assert call("search/products.db", "shoes", "--output", "csv").out.splitlines() == ["id,title", "1,red shoes"]


def test_what_would_steer_a_terminal_is_shown() -> None:
    assert "\x1b" not in call("products", "hat", "--output", "table").out


def test_nothing_found_is_said_and_ends_with_3() -> None:
    answer = call("products", "gloves")
    assert (answer.code, answer.out) == (3, "")
    assert "no row with gloves" in answer.err


@pytest.mark.parametrize(
    ("words", "code", "said"), [(("produkts", "x"), 3, "did you mean products"), (("products", "()"), 2, "no word")]
)
def test_what_goes_wrong_is_one_paragraph(words: tuple[str, ...], code: int, said: str) -> None:
    answer = call(*words)
    assert answer.code == code
    assert said in answer.err


def test_help_teaches_by_examples() -> None:
    answer = call("--help")
    assert "penstock search products '\"red shoes\"'" in answer.out
