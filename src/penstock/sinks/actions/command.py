"""A program of the user's, run for each row."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar, Unpack

from penstock.core.time import duration
from penstock.errors import BadInput
from penstock.sinks.actions.definition import ActionDefinition
from penstock.sinks.actions.outbox.sending import Sending, SendingOptions

if TYPE_CHECKING:
    from penstock.sinks.actions.processes import Command

KEY_VARIABLE = "PENSTOCK_IDEMPOTENCY_KEY"


@dataclass(frozen=True)
class CommandDefinition(ActionDefinition):
    """`stream.sink(command([…]))`"""

    words: tuple[str, ...]
    timeout: timedelta = timedelta(seconds=30)

    kind: ClassVar[str] = "command"

    @property
    def target(self) -> str:
        return PurePath(self.words[0]).name

    def action(self) -> "Command":
        from penstock.sinks.actions.processes import Command

        return Command(self)


def command(
    words: Sequence[str], *, timeout: str | timedelta = "30 seconds", **sending: Unpack[SendingOptions]
) -> CommandDefinition:
    """Runs a program for each row: `alerts.sink(command(["/usr/local/bin/page", "--team", "fraud"]))`.

    A list of arguments, no shell. The row is on its standard input as a JSON object, the idempotency key in the variable
    PENSTOCK_IDEMPOTENCY_KEY. It has taken the row when it ends with 0; with 65 (EX_DATAERR) the row is a dead letter at once, with
    anything else it is tried again. A program that takes longer than `timeout` is killed, with those that it started.
    docs/sinks/actions.md has `retries` and what else every action takes."""
    if isinstance(words, str) or not words or not all(isinstance(word, str) and word and "\0" not in word for word in words):
        raise BadInput("a command is a list of words", hint='write it like command(["/usr/local/bin/page", "--team", "fraud"])')
    return CommandDefinition(tuple(words), duration(timeout, "timeout"), sending=Sending.of(sending))
