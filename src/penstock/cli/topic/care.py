"""penstock topic alter and clean: how long a topic keeps what, and seeing to it."""

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from penstock.log.cleaning.partition import Cleaned
    from penstock.log.port import Log, TopicSpec

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?", re.IGNORECASE | re.ASCII)
_NONE = "none"
CLEANING = (
    click.option("--retain", metavar="DURATION", help='Remove records that are older, e.g. "7 days"; none: never (default).'),
    click.option("--retain-bytes", metavar="SIZE", help="Remove the oldest records of a partition that holds more, e.g. 10GB."),
    click.option("--compact/--no-compact", default=None, help="Keep only the latest record of every key."),
    click.option("--hold", metavar="DURATION", help='How much longer readers that are behind keep records; "7 days" by default.'),
    click.option("--tombstones", metavar="DURATION", help='How long compaction keeps a delete; "1 day" by default.'),
    click.option("--max-record", type=click.IntRange(min=1), metavar="BYTES", help="Largest record; 1 MiB by default."),
)


def cleaning_options(command: Any) -> Any:
    for option in reversed(CLEANING):
        command = option(command)
    return command


def cleaning_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The options as fields of a TopicSpec; those that were not given are left out."""
    from penstock.core.time import duration

    found = {word: value for word, value in given.items() if value is not None}
    for word in {"retain", "hold", "tombstones"} & set(found):
        none = word == "retain" and found[word] == _NONE
        found[word] = None if none else duration(found[word], f"--{word}")
    if "retain_bytes" in found:
        found["retain_bytes"] = None if found["retain_bytes"] == _NONE else size_of(found["retain_bytes"], "--retain-bytes")
    return found


def size_of(text: str, option: str) -> int:
    """10GB, 500 MiB or a number."""
    from penstock.errors import BadInput

    read = _SIZE.fullmatch(text.strip())
    if not read:
        raise BadInput(f"{option} {text!r} is no size", hint="write it like 10GB, 500 MiB, or as a number of bytes")
    power = " kmgt".index((read[2] or " ").lower())
    return max(1, int(float(read[1]) * (1024 if read[3] else 1000) ** power))


@click.command()
@click.argument("name")
@cleaning_options
@click.option("--partitions", type=click.IntRange(min=1, max=10_000), metavar="N", help="More partitions than it has.")
@click.option("--add-columns", metavar="DDL", help='Columns to add at the end, e.g. "country string, vat double".')
def alter(name: str, add_columns: str | None, partitions: int | None, **settings: Any) -> None:
    """Change settings of the topic NAME while it is in use. Processes that have it open notice within about a second.

    What its records depend on cannot change: time, key, durability, future. `penstock topic clean` removes what a new
    retention lets go; `penstock run` does so in the background.

    \b
    penstock topic alter orders --retain "7 days" --retain-bytes 10GB
    penstock topic alter users --compact --tombstones "2 days"
    penstock topic alter orders --add-columns "country string" --partitions 6
    """
    from dataclasses import replace

    from penstock.errors import BadInput
    from penstock.log.altering import Alterable
    from penstock.log.open import open_log

    log, changes = open_log(), cleaning_settings(settings | {"partitions": partitions})
    if not changes and add_columns is None:
        raise BadInput(f"there is nothing to alter in topic {name}", hint="penstock topic alter --help names the settings")
    if not isinstance(log, Alterable):
        raise BadInput("the topics of this log are altered with its own tools", hint="for Kafka: kafka-configs.sh, kafka-topics.sh")
    before = log.topic(name).spec
    if add_columns is not None:
        _add_columns(log, before, add_columns)
    spec = replace(log.topic(name).spec, **changes)
    log.alter(spec)
    click.echo(f"altered topic {name}", err=True)
    for text in _said(before, spec):
        click.echo(text, err=True)


def _add_columns(log: "Log", spec: "TopicSpec", ddl: str) -> None:
    from penstock.core.schema import Schema
    from penstock.errors import BadSchema

    if spec.schema is None:
        raise BadSchema(f"topic {spec.name} is raw: it has no columns")
    log.evolve(spec.name, Schema.of(f"{spec.schema.ddl()}, {ddl}"))


def _said(before: "TopicSpec", spec: "TopicSpec") -> list[str]:
    """What one should know of what was done."""
    said = []
    if spec.partitions > before.partitions:
        said.append(f"it has {spec.partitions} partitions now, {before.partitions} before")
        if spec.partition_by is None:
            said.append("rows of a key may from now on lie in another partition: their order is kept in each, not across them")
        said.append("  hint: where order by key matters, make a new topic and write the rows again")
    if spec.compact and not before.compact and spec.key is None:
        said.append("records without a key are all kept: the topic has no key column, so give each record its key")
    return said


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--follow", is_flag=True, help="Go on, as far as it is worth it, until Ctrl-C.")
@click.option("--every", default="30 seconds", metavar="DURATION", help='With --follow: how often; "30 seconds" by default.')
def clean(names: tuple[str, ...], follow: bool, every: str) -> None:
    """Remove what retention lets go, compact, and rewrite closed segments into large compressed frames; all topics by default.

    Readers and writers go on meanwhile. Records that a group or a flow has not read are held back for as long as --hold of
    the topic says; what goes unread after that is told here, and by topic describe and doctor.

    \b
    penstock topic clean orders
    penstock topic clean --follow
    """
    from threading import Event

    from penstock.core.time import duration
    from penstock.log.open import open_log

    log, pause = open_log(), duration(every, "--every").total_seconds()
    _clean(log, names or tuple(log.topics()), eager=True, quiet=False)
    while follow:
        Event().wait(pause)
        _clean(log, names or tuple(log.topics()), eager=False, quiet=True)


def _clean(log: "Log", names: tuple[str, ...], *, eager: bool, quiet: bool) -> None:
    """quiet: says only what was changed."""
    from penstock.errors import BadInput
    from penstock.log.cleaning.topics import Cleanable, warnings

    if not isinstance(log, Cleanable):
        raise BadInput("the topics of this log are cleaned by its broker", hint="for Kafka: retention.ms and cleanup.policy")
    holds = log.groups().positions
    for name in names:
        done = log.clean(name, holds, eager=eager)
        if not quiet or any(one.changed for one in done):
            click.echo(summary(name, list(done)), err=True)
        for one in done:
            for text in warnings(one, log.topic(name).spec):
                click.echo(f"warning: {text}", err=True)


def summary(name: str, done: list["Cleaned"]) -> str:
    """One line: what there was, what there is, and what was done."""
    if not done:
        return f"{name}: somebody else is cleaning it"
    if not any(one.changed for one in done):
        return f"{name}: nothing to do"
    rows = [sum(one.rows_before for one in done), sum(one.rows for one in done)]
    size = [sum(one.bytes_before for one in done), sum(one.bytes for one in done)]
    parts = [f"{name}: {_change(rows[0], rows[1], 'row')}", f"{_size(size[0])} → {_size(size[1])}"]
    removed, rewritten = sum(one.removed for one in done), sum(one.rewritten for one in done)
    parts += [f"{_count(removed, 'segment')} removed"] if removed else []
    parts += [f"{_count(rewritten, 'segment')} written anew"] if rewritten else []
    keyless = sum(one.keyless for one in done)
    parts += [f"{_count(keyless, 'row')} without a key kept"] if keyless else []
    waiting = sorted({held.reader for one in done for held in one.waiting})
    parts += [f"waiting for {', '.join(waiting)}"] if waiting else []
    return " · ".join(parts)


def _change(before: int, after: int, word: str) -> str:
    return f"{before:,} → {_count(after, word)}" if before != after else _count(after, word)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _size(count: int) -> str:
    for unit, power in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= power:
            return f"{count / power:.1f} {unit}"
    return f"{count} bytes"
