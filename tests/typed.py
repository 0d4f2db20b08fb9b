"""What a README tells its reader to type, typed in this process: `penstock` and Python programs, in a database of their own."""

import io
import os
import re
import runpy
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.cli.main import run
from penstock.testing.servers.postgres import PostgresServer


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
