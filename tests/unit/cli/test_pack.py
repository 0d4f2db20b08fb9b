"""penstock pack on the command line."""

from pathlib import Path

import pytest

from penstock.cli.main import run
from penstock.engine.spark.pack import read_manifest


def test_pack_writes_a_zip_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rates.py").write_text("EURO = 1\n")
    assert run(["pack", "--include", "rates.py"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("penstock-0.1.0.zip  ")
    assert said.err == "penstock 0.1.0, rates.py\n"
    assert read_manifest(tmp_path / "penstock-0.1.0.zip").included == ["rates.py"]


def test_libraries_go_into_an_archive_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pack", "--with", "numpy"]) == 2
    assert "--with goes with --archive" in capsys.readouterr().err


def test_what_cannot_be_packed_is_one_paragraph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pack", "--include", str(tmp_path / "gone.py"), "--out", str(tmp_path / "x.zip")]) == 2
    assert "gone.py cannot be packed: it is not there" in capsys.readouterr().err
