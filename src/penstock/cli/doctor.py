"""penstock doctor: looks at everything Penstock stands on and says what to do about what it finds."""

import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.main import printable
from penstock.errors import NoJava, PenstockError

if TYPE_CHECKING:
    from penstock.engine.diagnose.inspect import Finding
    from penstock.log.port import Topic

UNHEALTHY = 4
SIGNS = {"ok": "✓", "warn": "!", "bad": "✗"}
_PACKAGES = ("pyspark", "pyarrow", "polars")
_LITTLE_SPACE = 1 << 30
_TAIL = 10_000  # rows at the end of each partition that are read and checked against their CRC


@click.command()
@click.option("--warm", is_flag=True, help="Build the class-data archive now, so that Spark starts faster from now on.")
@click.option("--deep", is_flag=True, help="Read and verify every record of the log and every row of the views.")
@click.option("--resolve", is_flag=True, help="Finish what sinks over several databases left prepared, of flows that do not run.")
def doctor(warm: bool, deep: bool, resolve: bool) -> int:
    """Check home, Java, versions, log, flows, sinks and views, and say what to do.

    Exit code 4 if something is unhealthy (✗). Lines with ! are worth knowing and stop nothing.
    """
    if warm:
        _warm()
    from penstock.storage.home import find_home

    home = find_home()
    worst = "ok"
    for check in (
        lambda: _home(home),
        _python,
        _java,
        lambda: _promptness(home),
        lambda: _log(home, deep),
        lambda: _flows(home),
        lambda: _sinks(home),
        lambda: _prepared(home, resolve),
        lambda: _views(home, deep),
        lambda: _indexes(home),
    ):
        for level, what, hint in _careful(check):
            click.echo(printable(f"{SIGNS[level]} {what}" + (f"\n    {hint}" if hint else "")))
            worst = "bad" if level == "bad" else worst
    return UNHEALTHY if worst == "bad" else 0


def _careful(check: "Callable[[], Iterator[Finding]]") -> "Iterator[Finding]":
    """A check that breaks is a finding too, and the others still run."""
    from penstock.engine.diagnose.inspect import Finding

    try:
        yield from check()
    except PenstockError as error:
        yield Finding("bad", " · ".join([error.what, *error.detail]), error.hint)
    except Exception as error:
        yield Finding("bad", f"{type(error).__name__}: {error}", "this check itself failed: please report it")


def _warm() -> None:
    from penstock.engine.spark.archive import archive_path, build
    from penstock.engine.spark.java import find_java

    java = find_java()
    if not archive_path(java).exists():
        click.echo("building the class-data archive: about half a minute, once")
    build(java)


def _home(home: Path) -> "Iterator[Finding]":
    from penstock.engine.diagnose.inspect import Finding
    from penstock.storage.home import open_to_others

    if not home.exists():
        yield Finding("ok", f"home {home}: not there yet, made when something is written")
        return
    free = shutil.disk_usage(home).free
    yield Finding("ok", f"home {home}, {free / (1 << 30):,.1f} GiB free")
    if free < _LITTLE_SPACE:
        yield Finding("warn", "little space is left on its disk", "make room, or set PENSTOCK_HOME to another disk")
    if found := open_to_others(home):
        what, _, hint = found.partition(": ")
        yield Finding("warn", what, hint)


def _python() -> "Iterator[Finding]":
    from penstock.engine.diagnose.inspect import Finding

    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            yield Finding("bad", f"{package} is not installed", f"pip install {package}")
    yield Finding("ok", f"Python {platform.python_version()} ({sys.executable}), {', '.join(found)}")


def _java() -> "Iterator[Finding]":
    from penstock.engine.diagnose.inspect import Finding
    from penstock.engine.spark.archive import archive_path
    from penstock.engine.spark.java import find_java
    from penstock.engine.spark.launch import why_plain

    try:
        java = find_java()
    except NoJava as error:
        yield Finding("bad", error.what, error.hint)
        return
    yield Finding("ok", f"Java {java.text} ({java.path})")
    reason = why_plain()
    if reason is not None:
        yield Finding("warn", f"Spark is started PySpark's way, which is slower: {reason}")
    elif archive_path(java).exists():
        yield Finding("ok", "class-data archive: there")
    else:
        yield Finding(
            "warn", "class-data archive: not there yet, so Spark starts slowly", "it comes by itself; now: penstock doctor --warm"
        )


def _promptness(home: Path) -> "Iterator[Finding]":
    """How soon a live run sees what is appended, and what a small epoch costs it."""
    from importlib.util import find_spec

    from penstock.engine.diagnose.inspect import Finding
    from penstock.log.watching import POLL
    from penstock.storage.watching import why_not

    reason = why_not(home)
    if reason:
        yield Finding("warn", f"a live run looks at the log every {POLL * 1000:.0f} ms, for nobody tells it of appends: {reason}")
    else:
        yield Finding("ok", "a live run is woken by every append")
    if find_spec("cryptography") is None:
        what = "on a cluster whose connections are encrypted every epoch is a Spark job, for the package cryptography is missing"
        yield Finding("warn", what, "pip install 'penstock[cluster]'; on this machine alone it is not needed")


def _log(home: Path, deep: bool) -> "Iterator[Finding]":
    from penstock.engine.diagnose.inspect import Finding
    from penstock.log.file.log import FileLog
    from penstock.storage.local import LocalStorage

    if not (home / "log").exists():
        yield Finding("ok", "log: no topics yet")
        return
    log = FileLog(LocalStorage(str(home / "log")))
    for name in log.topics():
        yield from _careful(lambda name=name: _topic(log.topic(name), deep))  # type: ignore[misc]


def _topic(topic: "Topic", deep: bool) -> "Iterator[Finding]":
    from penstock.cli.topic.describe import losses, rows_of
    from penstock.engine.diagnose.inspect import Finding

    rows = checked = 0
    for partition, end in topic.ends().items():
        start = end.first if deep else max(end.first, end.next - _TAIL)
        topic.frames(partition, start)
        checked += sum(chunk.rows.num_rows for chunk in topic.read(partition, start))
        rows += rows_of(topic, partition, end)
    how = "all read and checked" if checked >= rows else f"the last {checked:,} read and checked"
    parts = f"{topic.spec.partitions} partition{'s' if topic.spec.partitions > 1 else ''}"
    yield Finding("ok", f"topic {topic.spec.name}: {rows:,} rows in {parts}, {how}")
    for text in losses(topic):
        hint = f"penstock topic alter {topic.spec.name} --hold DURATION keeps them longer"
        yield Finding("warn", f"topic {topic.spec.name}, {text}", hint)


def _flows(home: Path) -> "Iterator[Finding]":
    from penstock.engine.diagnose.inspect import health

    yield from health(home)


def _sinks(home: Path) -> "Iterator[Finding]":
    from penstock.engine.flows.sinks import behind

    yield from behind(home)


def _indexes(home: Path) -> "Iterator[Finding]":
    from penstock.engine.diagnose.indexes import indexes

    yield from indexes(home)


def _prepared(home: Path, resolve: bool) -> "Iterator[Finding]":
    from penstock.engine.flows.prepared import left_prepared

    yield from left_prepared(home, resolve)


def _views(home: Path, deep: bool) -> "Iterator[Finding]":
    from penstock.views.directory import list_views

    for name in list_views(home / "views"):
        yield from _careful(lambda name=name: _view(home, name, deep))  # type: ignore[misc]


def _view(home: Path, name: str, deep: bool) -> "Iterator[Finding]":
    from penstock.engine.diagnose.inspect import Finding
    from penstock.views.view import View

    with View(home / "views", name) as view:
        rows = view.count()
        said = f"{rows:,} row{'s' if rows != 1 else ''} as of epoch {view.epoch}" if view.epoch >= 0 else "nothing delivered yet"
        if deep:
            found = view.check()
            said += f"; {found.verified:,} version{'s' if found.verified != 1 else ''} verified"
            if found.bare:
                what = f"view {name}: {found.bare:,} versions carry no checksum: an older Penstock wrote them"
                yield Finding("warn", what, "rows gain one when they are written again")
        yield Finding("ok", f"view {name}: {said}")
