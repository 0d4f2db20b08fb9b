"""penstock plan: what a flow is, before anything starts; and how it sees the time of the rows that are there."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.log import with_log

if TYPE_CHECKING:
    from penstock.engine.diagnose.timeline import Stretch
    from penstock.log.port import Topic

_LAST = 200  # records that are drawn where nothing else is said


@dataclass(frozen=True)
class Wanted:
    """Which stretch of which topic is drawn."""

    topic: str | None
    partition: int | None
    first: str | None
    last: str | None


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FLOW.py...")
@click.option("--format", "form", type=click.Choice(["text", "mermaid"]), default="text", show_default=True)
@click.option("--spark", is_flag=True, help="Also show how Spark runs it: tasks, shuffles, and the physical plan of SQL steps.")
@click.option("--timeline", is_flag=True, help="Draw records, watermark, marks and windows of a topic as an SVG instead.")
@click.option("--topic", metavar="T", help="With --timeline: which topic; default: the first that a window reads.")
@click.option("--partition", type=int, metavar="P", help="With --timeline: which partition; default: the one written to last.")
@click.option("--from", "first", metavar="WHERE", help="With --timeline: the first record, by offset or append time.")
@click.option("--to", "last", metavar="WHERE", help=f"With --timeline: where it ends; default: the last {_LAST} records.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("timeline.svg"), show_default=True)
def plan(
    files: tuple[str, ...],
    form: str,
    spark: bool,
    timeline: bool,
    topic: str | None,
    partition: int | None,
    first: str | None,
    last: str | None,
    out: Path,
) -> None:
    """Show the steps of flows: what they read, who judges rows, where expressions run, what they write.

    With --timeline, draw how a flow sees the time of the records that are there: event time to the right, append time downwards;
    late records are red, the watermark is a line, windows are bands. Open the file in a browser, and point at a record.

    \b
    penstock plan shop.py
    penstock plan shop.py --format mermaid > shop.mmd
    penstock plan shop.py --spark
    penstock plan shop.py --timeline --topic orders --partition 0 --from 1000 --to 1200 --out orders.svg
    """
    if timeline:
        _draw(files, Wanted(topic, partition, first, last), out)
    else:
        _show(files, form, spark)


def _show(files: tuple[str, ...], form: str, spark: bool) -> None:
    from penstock.cli.flow.load import load_flows
    from penstock.engine.run.runtime import Runtime, log_of
    from penstock.flow.explain import as_mermaid, as_text
    from penstock.storage.home import find_home

    graphs = load_flows(files)
    runtime = Runtime(find_home(), url=log_of(graphs))
    for graph in graphs:
        resolved = runtime.plan(graph, graphs)
        click.echo(as_mermaid(resolved) if form == "mermaid" else as_text(resolved))
        if spark:
            from penstock.engine.diagnose.explain import spark_text

            click.echo(spark_text(runtime, resolved))


def _draw(files: tuple[str, ...], wanted: Wanted, out: Path) -> None:
    from penstock.cli.flow.load import load_flows
    from penstock.cli.flow.timeline import as_svg
    from penstock.engine.diagnose.timeline import source_of, timeline
    from penstock.engine.diagnose.trace import marks_of, programs
    from penstock.engine.run.epoch.decision import Decisions
    from penstock.errors import NotFound
    from penstock.storage.home import find_home
    from penstock.storage.local import LocalStorage

    home = find_home()
    for program, log in programs(home, load_flows(files)):
        if wanted.topic and wanted.topic not in {spec.topic for spec in program.sources.values()}:
            continue
        spec, flow = source_of(program, wanted.topic), program.plan.flow
        topic = log.topic(spec.topic)
        stretch = _stretch(topic, wanted)
        marks = marks_of(Decisions(LocalStorage(str(home / "flows" / flow)), flow))
        drawn = timeline(program, topic, spec, stretch, marks)
        out.write_text(as_svg(drawn), encoding="utf-8")
        late = sum(item.kind == "late" for item in drawn.items)
        what = f"{spec.topic}/{stretch.partition}, offsets {stretch.start} to {stretch.stop - 1}: {late} late"
        click.echo(f"{out}: flow {flow}, {what}", err=True)
        return
    raise NotFound(f"no flow in {', '.join(files)} reads topic {wanted.topic}")


def _stretch(topic: "Topic", wanted: Wanted) -> "Stretch":
    from penstock.engine.diagnose.timeline import Stretch
    from penstock.errors import BadInput, NotFound

    ends = topic.ends()
    partition = max(ends, key=lambda p: ends[p].appended) if wanted.partition is None else wanted.partition
    if partition not in ends:
        raise NotFound(f"topic {topic.spec.name} has no partition {partition}", f"it has {len(ends)}, counted from 0")
    end = ends[partition]
    stop = min(end.next, _place(topic, partition, wanted.last)) if wanted.last else None
    if wanted.first:
        start = max(end.first, _place(topic, partition, wanted.first))
        stop = min(end.next, start + _LAST) if stop is None else stop
    else:
        stop = end.next if stop is None else stop
        start = max(end.first, stop - _LAST)
    if start >= stop:
        raise BadInput(
            f"there is no record to draw in {topic.spec.name}/{partition}",
            f"it holds the offsets {end.first} to {end.next - 1}" if end.next else "it is empty",
        )
    return Stretch(partition, start, stop)


def _place(topic: "Topic", partition: int, given: str) -> int:
    """An offset, or the first offset at or behind an append time."""
    from penstock.core.time import instant, micros

    if given.isdigit():
        return int(given)
    at, end = micros(instant(given)), topic.ends()[partition]
    return next((f.base for f in topic.frames(partition, end.first) if f.count and f.appended >= at), end.next)


with_log(plan)
