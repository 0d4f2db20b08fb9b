"""penstock topic: create, alter, list, describe, write, read, mark, clean and delete topics."""

from typing import TYPE_CHECKING, Any, BinaryIO

import click

from penstock.cli.log import found_or_made, with_log
from penstock.cli.output import raw_option
from penstock.cli.topic.care import alter, clean, cleaning_options, cleaning_settings

if TYPE_CHECKING:
    from penstock.log.port import Topic, TopicSpec

_OUTPUT = click.Choice(["table", "jsonl", "csv"])
_OUTPUT_HELP = "Default: a table on a terminal, else JSON lines."
_SETTINGS = (
    click.option("--partitions", type=click.IntRange(min=1, max=10_000), metavar="N", help="Number of partitions; 1 by default."),
    click.option("--schema", metavar="DDL", help='Columns, e.g. "order_id string, amount double, at timestamp". Without: raw.'),
    click.option("--time", metavar="COLUMN", help="Column or JSON field with the event time. Without: the time of writing."),
    click.option("--key", metavar="COLUMN", help="Column or JSON field that is the key; several with commas."),
    click.option("--partition-by", metavar="EXPR", help='Partition by an expression, e.g. "user_id % 3". Without: by key.'),
    click.option(
        "--durability", type=click.Choice(["fsync", "os", "memory"]), help="What an acknowledged row survives; fsync by default."
    ),
)


def _settings(command: Any) -> Any:
    for option in reversed(_SETTINGS):
        command = option(command)
    return command


@click.group()
def topic() -> None:
    """Create, alter, list, describe, write, read, mark, clean and delete topics.

    \b
    penstock topic produce orders orders.jsonl --time at --key user_id
    penstock topic consume orders --where "amount > 100"
    """


@topic.command()
@click.argument("name")
@_settings
@click.option(
    "--future", metavar="DURATION", help='Rows this far beyond their time of writing are implausible; "1 day" by default.'
)
@click.option(
    "--codec", type=click.Choice(["json", "avro", "avro+registry"]), help="How Kafka's records hold rows; json by default."
)
@click.option(
    "--adopt", is_flag=True, help="The topic is on Kafka already: give it these settings, and leave its records as they are."
)
@cleaning_options
def create(name: str, future: str | None, adopt: bool, **settings: Any) -> None:
    """Make the topic NAME.

    With --schema its rows have typed columns; without, it is raw and keeps lines as they are.

    \b
    penstock topic create orders --partitions 3 --key user_id --time at \\
        --schema "order_id string, user_id long, amount double, at timestamp"
    """
    from penstock.core.time import duration
    from penstock.errors import BadInput
    from penstock.log.open import open_log
    from penstock.log.port import Adopting

    spec = _spec(name, cleaning_settings(settings | {"future": future and duration(future, "--future")}))
    log = open_log()
    if adopt and not isinstance(log, Adopting):
        raise BadInput("nobody else makes topics in the embedded log", hint="leave --adopt out, or say --log kafka://…")
    made = log.adopt(spec) if isinstance(log, Adopting) and adopt else log.create(spec)
    click.echo(f"topic {name} has {_count(made.spec.partitions, 'partition')}", err=True)


@topic.command("list")
@click.option("--output", type=_OUTPUT, help=_OUTPUT_HELP)
@raw_option
def list_(output: str | None) -> None:
    """List the topics.

    \b
    penstock topic list --output jsonl
    """
    import pyarrow as pa

    from penstock.cli.output import print_table
    from penstock.cli.topic.describe import LIST, summary
    from penstock.log.open import open_log
    from penstock.storage.home import find_home

    log = open_log()
    rows = [summary(log.topic(name)) for name in log.topics()]
    if not rows:
        where = getattr(log, "settings", None) or find_home()  # a broker says how it is reached
        click.echo(f"no topics in {where}; penstock topic produce NAME FILE makes one", err=True)
    if rows or output:
        print_table(pa.Table.from_pylist(rows, LIST), output, keys=["topic"])


@topic.command()
@click.argument("name")
@click.option("--output", type=_OUTPUT, help=_OUTPUT_HELP)
@raw_option
def describe(name: str, output: str | None) -> None:
    """Show settings and partitions of the topic NAME: offsets, last write, greatest event time and mark, size, disorder.

    Disorder is how far a row came behind a newer one, at most, over the last two million rows of a partition.

    \b
    penstock topic describe orders
    """
    import pyarrow as pa

    from penstock.cli.output import kind_of, print_table
    from penstock.cli.topic.describe import PARTITIONS, losses, partitions, settings
    from penstock.log.open import open_log

    found = open_log().topic(name)
    told = "\n".join(f"{word:<14} {value}" for word, value in settings(found).items())
    click.echo(told, err=kind_of(output) != "table")  # what a program reads has rows alone
    for text in losses(found):
        click.echo(f"warning: {text}", err=True)
    print_table(pa.Table.from_pylist(partitions(found), PARTITIONS), output, keys=["partition"])


@topic.command()
@click.argument("name")
@click.argument("file", type=click.File("rb"), required=False)
@click.option("--listen", metavar="HOST:PORT", help="Take lines from TCP connections instead (loopback only; port 0: any).")
@click.option("--listen-anywhere", is_flag=True, help="Let --listen take connections from other machines: anyone may then write.")
@_settings
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Write to this partition only.")
@click.option(
    "--on-error", type=click.Choice(["skip", "stop"]), default="skip", help="At a line that does not fit: go on (default) or stop."
)
@click.option("--rejects", type=click.File("wb"), metavar="FILE", help="Write every refused line there, with number and reason.")
@click.option(
    "--batch", type=click.IntRange(min=1, max=1_000_000), default=10_000, metavar="N", help="Rows written at once; 10000."
)
@click.option(
    "--format", "form", type=click.Choice(["json", "raw"]), default="json", help="raw: any line, kept as it is (raw topics)."
)
@click.option("--max", "most", type=click.IntRange(min=1), metavar="N", help="Stop after N rows.")
@click.option("--delete", is_flag=True, help='Lines hold keys, as {"user_id": 1} or 1: the rows of these keys are gone.')
@click.option("--mark", metavar="TIME", help='Mark every partition at the end: no earlier rows will come; "end": none at all.')
def produce(
    name: str,
    file: BinaryIO | None,
    listen: str | None,
    listen_anywhere: bool,
    partition: int | None,
    on_error: str,
    rejects: BinaryIO | None,
    batch: int,
    form: str,
    most: int | None,
    delete: bool,
    mark: str | None,
    **settings: Any,
) -> int:
    """Write JSON lines from FILE, standard input or a socket to the topic NAME; make the topic if it is not there.

    Every line is stored or told about: with its number and the reason, and counted in the last line. A line with
    "__op": "delete" says that the row of its key is gone, as consume prints it; with --delete all lines do.

    \b
    penstock topic produce orders orders.jsonl --time at --key user_id --partitions 3
    tail -f app.log | penstock topic produce lines --format raw
    penstock topic produce events --listen 127.0.0.1:9000
    echo '{"user_id": 7}' | penstock topic produce users --delete
    """
    from penstock.cli.topic.produce import Order, produce_all

    order = Order(partition, on_error == "stop", most, form == "raw", batch, mark, delete)
    return produce_all(_topic_to_write(name, settings, order.raw), order, file, (listen, listen_anywhere), rejects)


@topic.command()
@click.argument("name")
@click.option(
    "--from", "start", default="earliest", metavar="WHERE", help="earliest (default), latest, an offset, or an event time."
)
@click.option("--to", "stop", metavar="WHERE", help="Up to there, exclusive; by default what is there now.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="The last N rows of each partition.")
@click.option("--max", "most", type=click.IntRange(min=1), metavar="N", help="At most N rows.")
@click.option("--follow", is_flag=True, help="Go on with rows as they come, until Ctrl-C.")
@click.option("--where", metavar="SQL", help='Only rows for which this holds, e.g. "amount > 100".')
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="This partition only.")
@click.option("--meta/--no-meta", default=None, help="Partition, offset, key and times too; by default in tables only.")
@click.option("--output", type=_OUTPUT, help=_OUTPUT_HELP)
@raw_option
def consume(name: str, output: str | None, meta: bool | None, **order: Any) -> None:
    """Print the rows of the topic NAME, partition by partition.

    JSON values are shown by their fields. JSON lines give rows back as they were written, deletes with "__op": "delete".

    \b
    penstock topic consume orders --max 10
    penstock topic consume orders --last 10 --follow
    penstock topic consume orders --from 2024-01-15T10:00:00Z --where "amount > 100 and user_id = 7"
    penstock topic consume orders --follow --output jsonl | jq .
    """
    from penstock.cli.topic.consume import Order, consume_to
    from penstock.log.open import open_log

    consume_to(open_log().topic(name), Order(**order), output, meta)


@topic.command()
@click.argument("name")
@click.argument("time")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="This partition only; all by default.")
def mark(name: str, time: str, partition: int | None) -> None:
    """Promise that no row before TIME will come to the topic NAME: windows up to there close. `end`: no row at all.

    \b
    penstock topic mark orders 2024-01-15T11:00:00Z
    penstock topic mark orders end
    """
    from penstock.core.time import text
    from penstock.log.open import open_log
    from penstock.log.producer import Producer, as_micros

    until, found = as_micros(time), open_log().topic(name)
    with Producer(found) as producer:
        producer.mark(until, partition)
    where = f"{name}/{partition}" if partition is not None else f"{name} ({_count(found.spec.partitions, 'partition')})"
    click.echo(f"marked {where} with {text(until)}", err=True)


@topic.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(name: str, yes: bool) -> None:
    """Delete the topic NAME and all its rows.

    \b
    penstock topic delete orders --yes
    """
    from penstock.log.open import open_log

    log = open_log()
    rows = sum(end.next - end.first for end in log.topic(name).ends().values())
    if not yes:
        click.confirm(f"delete topic {name} with {_count(rows, 'row')}?", abort=True)
    log.delete(name)
    click.echo(f"deleted topic {name} with {_count(rows, 'row')}", err=True)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _spec(name: str, settings: dict[str, Any]) -> "TopicSpec":
    """The settings that were given, checked as far as one can without the log."""
    from penstock.core.names import check_name
    from penstock.core.schema import Schema
    from penstock.log.intake.rows_in import check_settings
    from penstock.log.port import TopicSpec

    given = {word: value for word, value in settings.items() if value is not None}
    if "schema" in given:
        given["schema"] = Schema.of(given["schema"])
    spec = TopicSpec(check_name(name), **given)
    check_settings(spec)
    return spec


def _topic_to_write(name: str, settings: dict[str, Any], raw: bool) -> "Topic":
    """The topic, made with these settings if it is not there; BadInput if it is there with others."""
    from penstock.errors import BadInput
    from penstock.log.open import open_log

    spec = _spec(name, settings)
    found = found_or_made(open_log(), spec)
    for word, value in settings.items():
        there, wanted = getattr(found.spec, word), getattr(spec, word)
        if value is not None and there != wanted:
            raise BadInput(
                f"topic {name} is there already, with another {word.replace('_', ' ')}",
                f"it has {_shown(there)}, not {_shown(wanted)}",
                hint=f"leave --{word.replace('_', '-')} out, or write to another topic",
            )
    if raw and found.spec.schema:
        raise BadInput(f"topic {name} has a schema: its rows are JSON", hint="leave --format raw out")
    return found


def _shown(value: Any) -> str:
    from penstock.core.schema import Schema

    return "none" if value is None else value.ddl() if isinstance(value, Schema) else str(value)


topic.add_command(alter)
topic.add_command(clean)
with_log(topic)
