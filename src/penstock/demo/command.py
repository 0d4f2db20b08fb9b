"""penstock demo: a shop with orders and payments out of order, an engine that is killed twice, and books that balance."""

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.errors import AlreadyThere, PenstockError
from penstock.storage.home import make_private

if TYPE_CHECKING:
    from penstock.demo.engine import Engine
    from penstock.demo.screen import Stage

UNHEALTHY = 4


@dataclass
class Place:
    """Where the demo works, and whether that stays."""

    path: Path
    keep: bool


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(min=5, max=3600), default=50.0, show_default=True, help="How long the shop is open."
)
@click.option("--headless", is_flag=True, help="No live tables: lines on standard error, the verdict on standard output.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", help="The form of the verdict; json is headless.")
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="An empty or new directory to work in, and keep.")
@click.option("--keep", is_flag=True, help="Keep the directory, to look around in it afterwards.")
def demo(seconds: float, headless: bool, output: str, home: Path | None, keep: bool) -> int:
    """Run a shop, kill its engine twice in the middle of an epoch, and compare the books: nothing lost, nothing doubled.

    \b
    penstock demo
    penstock demo --headless --seconds 30 --output json

    Exit code 4 if the books do not balance.
    """
    import time

    started = time.monotonic()
    from penstock.engine.spark.java import find_java

    find_java()  # said now, and not by a child that dies of it
    headless = headless or output == "json" or not sys.stdout.isatty()
    with _interrupted_by_signals(), _home(home, keep) as place:
        return _run(place, seconds, headless, output, started)


def _run(place: Place, seconds: float, headless: bool, output: str, started: float) -> int:
    click.echo(f"a shop in {place.path}: getting ready", err=True)
    from penstock.demo.cues import kill_at
    from penstock.demo.engine import Engine
    from penstock.demo.topics import make_topics

    make_topics(place.path)
    engine = Engine(place.path)
    engine.start(kill_at=kill_at(0, seconds))  # before anything else: it takes longest
    try:
        return _tell(place, engine, seconds, headless, output, started)
    except KeyboardInterrupt:
        click.echo("stopping", err=True)
        raise
    finally:
        engine.stop()


def _tell(place: Place, engine: "Engine", seconds: float, headless: bool, output: str, started: float) -> int:
    from penstock.demo.story import Story

    with _stage(headless, place.path, started) as stage:
        outcome = Story(engine, stage, seconds, started).tell()
        stage.tell("the books: everything is computed again from the log alone")
        from penstock.demo.books import close_books

        books = close_books(place.path, outcome.orders)
    place.keep = place.keep or not books.ok
    from penstock.demo.verdict import as_json, print_verdict

    if output == "json":
        click.echo(as_json(books, outcome))
    else:
        print_verdict(books, outcome)
    if place.keep:
        click.echo(f"home {place.path} is kept: penstock --home {place.path} view list", err=True)
    return 0 if books.ok else UNHEALTHY


def _stage(headless: bool, home: Path, started: float) -> "Stage":
    from rich.console import Console

    from penstock.demo.screen import Lines, Screen

    if not headless:
        return Screen(Console(highlight=False), f"Penstock: a shop · home {home}", started)
    return Lines(started)


@contextmanager
def _home(given: Path | None, keep: bool) -> Iterator[Place]:
    """The directory given, which must be new or empty, or a temporary one, which goes unless it is to be kept."""
    if given is not None and given.exists() and any(given.iterdir()):
        raise AlreadyThere(f"the directory {given} is not empty", hint="the demo makes topics and views of its own: give a new one")
    if given is not None:
        make_private(given)
    place = Place(given.absolute() if given else Path(tempfile.mkdtemp(prefix="penstock-demo-")), keep or given is not None)
    try:
        yield place
    except PenstockError:
        place.keep = True  # the message names files in it
        raise
    finally:
        if not place.keep:
            shutil.rmtree(place.path, ignore_errors=True)


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """SIGTERM, and the end of the terminal, end the demo as Ctrl-C does: together with its engine."""

    def handle(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
