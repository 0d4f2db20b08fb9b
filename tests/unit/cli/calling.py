"""Commands as a user calls them, in this process."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from click.testing import CliRunner

from penstock.cli.main import run


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def bodies(self) -> list[Any]:
        return [row["body"] for row in self.rows]


Call = Callable[..., Answer]


def calls_of(*command: str) -> Call:
    """Calls of one command; what is given as `given` is standard input."""

    def call(*words: str, given: str | bytes = b"") -> Answer:
        with CliRunner().isolation(input=given) as streams:
            code = run([*command, *words])
            return Answer(code, streams[0].getvalue().decode(), streams[1].getvalue().decode())

    return call
