"""penstock ingest: any Spark stream into a topic, exactly once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from penstock.cli.conf import spark_settings


@click.command()
@click.argument("file", metavar="FILE.py", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--into", "topic", required=True, metavar="TOPIC", help="The topic; made with the columns of the stream if missing.")
@click.option("--checkpoint", required=True, metavar="DIR", help="Where Spark keeps how far the stream was read.")
@click.option("--once", is_flag=True, help="Read what is there now, then stop.")
@click.option("--name", metavar="NAME", help="Names this stream for the topic; keep it with the checkpoint. [default: FILE]")
@click.option("--every", metavar="DURATION", help='Start a batch at most this often, e.g. "5 seconds".')
@click.option("--key", metavar="COLUMN", help="Of a new topic: the column that makes the key (several: a,b).")
@click.option("--time", metavar="COLUMN", help="Of a new topic: the column that holds the event time.")
@click.option("--partitions", type=click.IntRange(min=1), metavar="N", help="Of a new topic: how many. [default: 1]")
@click.option("--durability", type=click.Choice(["fsync", "os", "memory"]), help="Of a new topic. [default: fsync]")
@click.option("--master", metavar="URL", help="Spark master, e.g. local[4] or spark://host:7077.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Any Spark setting; may be given several times.")
@click.option("--quiet", is_flag=True, help="Only the closing line.")
def ingest(
    file: Path,
    topic: str,
    checkpoint: str,
    once: bool,
    name: str | None,
    every: str | None,
    master: str | None,
    conf: tuple[str, ...],
    quiet: bool,
    **settings: Any,
) -> None:
    """Write the stream that FILE.py defines into a topic, each row exactly once, however often it is stopped or killed.

    \b
    FILE.py defines stream(spark), which returns a streaming DataFrame from any source that Spark has:
    \b
        def stream(spark):
            return spark.readStream.schema("user long, page string, at timestamp").json("incoming/")
    \b
    penstock ingest clicks.py --into clicks --checkpoint ckpt --key user --time at
    penstock ingest clicks.py --into clicks --checkpoint ckpt --once
    """
    if once and every:
        raise click.UsageError("--once and --every exclude each other")
    stream = _stream_of(file)
    from penstock.engine.datasource.run import Intake, ingest
    from penstock.storage.home import find_home

    asked = {option: str(value) for option, value in settings.items() if value is not None}
    order = Intake(topic, name or file.stem, _place(checkpoint), find_home(), once, every, asked, master, spark_settings(conf))
    said: Callable[[str], None] = (lambda line: None) if quiet else (lambda line: click.echo(line, err=True))
    said(f"home {order.home}")
    click.echo(str(ingest(stream, order, said)), err=True)


def _stream_of(path: Path) -> Callable[..., Any]:
    """The function `stream` of the file. What it raises is told with the place in the file."""
    from penstock.cli.flow.load import load_file, told
    from penstock.errors import BadInput

    stream = load_file(path, "stream(spark)").get("stream")
    if not callable(stream):
        raise BadInput(f"{path} defines no function stream(spark)", hint="see `penstock ingest --help` for one")

    def guarded(spark: Any) -> Any:
        with told(path):
            return stream(spark)

    return guarded


def _place(checkpoint: str) -> str:
    """An address such as s3a://… as it is; a path from here."""
    return checkpoint if "://" in checkpoint else str(Path(checkpoint).expanduser().absolute())
