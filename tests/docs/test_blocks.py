"""What README and docs show is run, and what they name is there."""

import ast
import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import click
import pytest

from docs.blocks import ROOT, Block, Command, blocks, commands, documents, matches
from penstock.cli.main import COMMANDS, cli
from typed import own_database, own_mariadb, postgres_programs

LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#]+)[^)]*\)")
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?(?:::(\w+))?`")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def all_blocks(language: str) -> list[pytest.param]:
    found = [(path, block) for path in documents() for block in blocks(path.read_text()) if block.language == language]
    return [pytest.param(block, id=f"{name_of(path)}:{block.line}") for path, block in found]


def running() -> list[pytest.param]:
    found = [(path, [b for b in blocks(path.read_text()) if b.runs or b.value("file")]) for path in documents()]
    return [
        pytest.param(todo, id=name_of(path), marks=[pytest.mark.spark] if any(b.needs_spark for b in todo) else [])
        for path, todo in found
        if any(b.runs for b in todo)
    ]


@pytest.mark.parametrize("todo", running())
def test_every_block_that_says_so_runs_as_shown(todo: list[Block], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with ExitStack() as stack:
        if any(block.needs_postgres for block in todo):
            stack.enter_context(own_database(request.getfixturevalue("postgres"), "docs", tmp_path / "home"))
        if any(block.needs_mariadb for block in todo):
            stack.enter_context(own_mariadb(request.getfixturevalue("mariadb"), "docs"))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], *postgres_programs()])
        run_all(todo, tmp_path, {**os.environ, "PENSTOCK_HOME": str(tmp_path / "home"), "PATH": path})


def run_all(todo: list[Block], directory: Path, env: dict[str, str]) -> None:
    for block in todo:
        named = block.value("file")
        if named:
            (directory / named).write_text(block.body)
        elif block.language == "python":
            done = subprocess.run(
                [sys.executable, "-c", block.body], cwd=directory, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"line {block.line}: {done.stderr}"
        else:
            for command in commands(block):
                run(command, directory, env)


def run(command: Command, directory: Path, env: dict[str, str]) -> None:
    done = subprocess.run(["bash", "-c", command.text], cwd=directory, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command.text}\n{done.stdout}{done.stderr}"
    if command.shown:
        said = done.stdout + done.stderr
        assert matches(command.shown, done.stdout) or matches(command.shown, said), f"{command.text}\n{said}"


@pytest.mark.parametrize("block", all_blocks("python"))
def test_every_python_block_is_python(block: Block) -> None:
    assert ast.parse(
        block.body if not block.value("from") else f"def f():\n    {block.body.strip().replace(chr(10), chr(10) + '    ')}"
    ).body


@pytest.mark.parametrize("block", [p for p in all_blocks("python") if p.values[0].value("from")])
def test_every_quotation_stands_in_the_file_it_names(block: Block) -> None:
    source = (ROOT / str(block.value("from"))).read_text()
    lines = [line.strip() for line in block.body.strip().splitlines()]
    stripped = "\n".join(line.strip() for line in source.splitlines())
    assert "\n".join(lines) in stripped


@pytest.mark.parametrize("block", all_blocks("console"))
def test_every_command_and_option_shown_is_there(block: Block) -> None:
    assert commands(block)
    for command in commands(block):
        words = shlex.split(command.text)
        if words[0] == "penstock":
            check_options(words[1:])
        elif words[0] == "make":
            assert re.search(rf"^{words[1]}:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE), command.text
        else:
            assert block.runs or words[0] in ("cat", "git"), command.text


def check_options(words: list[str]) -> None:
    group, context = cli, click.Context(cli)
    known = {option for p in group.params for option in p.opts}
    while words:
        word, *words = words
        if word.startswith("--"):
            assert word.partition("=")[0] in known, word
        elif isinstance(group, click.Group):
            found = group.get_command(context, word)
            assert found is not None, word
            group, context = found, click.Context(found)
            known |= {option for p in found.params for option in p.opts}


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text()):
        assert (path.parent / target).exists(), target


def test_every_command_has_its_line_in_the_docs() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for name in COMMANDS:
        assert f"| `penstock {name}" in text, name


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_every_test_that_is_named_exists(path: Path) -> None:
    for file, first, second in NAMED_TEST.findall(path.read_text()):
        assert (ROOT / file).exists(), file
        for name in filter(None, (first, second)):
            assert re.search(rf"(def|class) {name}\b", (ROOT / file).read_text()), f"{file}::{name}"


def test_every_guarantee_names_a_test() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    sections = re.split(r"^## (G\d+)", text, flags=re.MULTILINE)
    numbers, bodies = sections[1::2], sections[2::2]
    assert numbers == [f"G{n}" for n in range(1, len(numbers) + 1)]
    for number, body in zip(numbers, bodies, strict=True):
        assert NAMED_TEST.search(body), number


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (("a", "b"), "a\nb\n", True),
        (("a",), "b\n", False),
        (('{"id":1,…}',), '{"id":1,"x":2}', True),
        (('{"id":1,…}',), '{"id":2,"x":2}', False),
        (("a…", "…"), "abc\nd\ne\n", True),
        (("a…", "…"), "abc\n", True),
        (("a…",), "abc\nd\n", False),
        (("a", "…", "z"), "a\nb\nc\nz\n", True),
        (("a.c",), "abc\n", False),
    ],
)
def test_output_is_compared_as_promised(shown: tuple[str, ...], printed: str, same: bool) -> None:
    assert matches(shown, printed) == same
