"""Logs and topics as commands open them: the option --log, and a topic that is made where it is missing."""

import os
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from penstock.log.port import Log, Topic, TopicSpec

C = TypeVar("C", bound=click.Command)
HELP = "The log, e.g. kafka://host:9092; the embedded one of the home by default. Also PENSTOCK_LOG."


def take(ctx: click.Context, option: click.Parameter, url: str | None) -> None:
    """Makes it the log that `open_log` sees."""
    if url is not None:
        from penstock.log.open import VARIABLE, check_url

        os.environ[VARIABLE] = check_url(url)


def log_option() -> click.Option:
    return click.Option(["--log"], metavar="URL", help=HELP, callback=take, expose_value=False)


def with_log(command: C) -> C:
    """The command, and all commands below it, with the option --log."""
    command.params.append(log_option())
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        with_log(each)
    return command


def found_or_made(log: "Log", spec: "TopicSpec") -> "Topic":
    """The topic of this name; made with these settings only if it is not there."""
    from penstock.errors import AlreadyThere, NotFound

    try:
        return log.topic(spec.name)
    except NotFound:
        try:
            return log.create(spec)
        except AlreadyThere:  # somebody else made it just now
            return log.topic(spec.name)
