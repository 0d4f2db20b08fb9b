"""penstock why: what became of one record, step by step, and which setting would have changed it."""

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.log import with_log

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.position import Position
    from penstock.engine.diagnose.locate import Story
    from penstock.log.port import Topic


@click.command()
@click.argument("topic")
@click.argument("partition", type=int)
@click.argument("offset", type=int)
@click.argument("files", nargs=-1, metavar="[FLOW.py...]")
@click.option("--flow", "only", metavar="NAME", help="Only this flow; without it, every flow here that reads the topic.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def why(topic: str, partition: int, offset: int, files: tuple[str, ...], only: str | None, output: str) -> int:
    """Tell what became of the record OFFSET of PARTITION of TOPIC: when it was read, how its time was judged, which steps let it
    pass, which windows took it or called it late, where it went, and which setting would have changed it.

    With the files of the flows it is followed step by step; without them only what the flows wrote down is known: the epoch, and
    late or dead rows. Exit code 3 if there is no such record, or no flow has read it yet.

    \b
    penstock why orders 0 17 shop.py
    penstock why orders 0 17 --flow shop
    penstock why orders 0 17 shop.py --output json
    """
    from penstock.core.position import Position
    from penstock.engine.diagnose.locate import find
    from penstock.errors import NotFound
    from penstock.log.open import open_log
    from penstock.storage.home import find_home

    home, where = find_home(), Position(topic, partition, offset)
    opened = open_log().topic(topic)
    row, appended = find(opened, where)
    stories = _stories(home, opened, where, files, only)
    if not stories:
        which = f"flow {only} does not read" if only else "no flow that has run here reads"
        raise NotFound(f"{which} topic {topic}", hint="run one first, e.g. penstock run shop.py --catch-up")
    if output == "json":
        _print_json(where, row, appended, stories)
    else:
        _print_text(where, row, appended, stories, files)
    return 0 if any(story.read for story in stories) else NotFound.exit_code


def _stories(home: "Path", topic: "Topic", where: "Position", files: tuple[str, ...], only: str | None) -> "list[Story]":
    from penstock.engine.diagnose.inspect import decisions_of, flows
    from penstock.engine.diagnose.locate import reads, told_by_letters
    from penstock.log.open import open_log

    followed = _followed(home, where, files)
    told = {
        name: told_by_letters(open_log(), decisions, topic, where)
        for name in flows(home)
        if name not in followed and (only in (None, name)) and reads(decisions := decisions_of(home, name), topic)
    }
    return [story for name, story in sorted((followed | told).items()) if only in (None, name)]


def _followed(home: "Path", where: "Position", files: tuple[str, ...]) -> "dict[str, Story]":
    """The stories of the flows whose files were given."""
    if not files:
        return {}
    from penstock.cli.flow.load import load_flows
    from penstock.engine.diagnose.trace import programs
    from penstock.engine.diagnose.why import Followed
    from penstock.engine.run.epoch.decision import Decisions
    from penstock.storage.local import LocalStorage

    stories = {}
    for program, log in programs(home, load_flows(files)):
        name = program.plan.flow
        if any(spec.topic == where.topic and not spec.static for spec in program.sources.values()):
            stories[name] = Followed(program, log, Decisions(LocalStorage(str(home / "flows" / name)), name), where).story()
    return stories


def _print_json(where: "Position", row: dict[str, Any], appended: int, stories: "list[Story]") -> None:
    import orjson

    from penstock.core.time import text

    told = {
        "topic": where.topic,
        "partition": where.partition,
        "offset": where.offset,
        "appended": text(appended),
        "row": row,
        "flows": [
            {
                "flow": story.flow,
                "read": story.read,
                "note": story.note,
                "steps": [
                    {"step": e.step, "fate": e.fate, "text": e.text, **e.facts, "would_change_it": list(e.changes)}
                    for e in story.events
                ],
            }
            for story in stories
        ],
    }
    click.echo(orjson.dumps(told).decode())


def _print_text(where: "Position", row: dict[str, Any], appended: int, stories: "list[Story]", files: tuple[str, ...]) -> None:
    import orjson

    from penstock.cli.output import safe
    from penstock.core.time import text

    click.echo(safe(f"{where}  {orjson.dumps(row).decode()}"))
    click.echo(f"appended {text(appended)}")
    for story in stories:
        click.echo(f"\nflow {story.flow}" + (f" ({story.note})" if story.note else ""))
        width = max((len(e.step) for e in story.events), default=0)
        for event in story.events:
            click.echo(safe(f"  {event.step:<{width}}  {event.text}"))
            if event.changes:
                click.echo(safe(f"  {'':<{width}}  would have changed it: {'; or '.join(event.changes)}"))
    if not files:
        click.echo("\nhint: give the flow's file too, and the record is followed step by step", err=True)


with_log(why)
