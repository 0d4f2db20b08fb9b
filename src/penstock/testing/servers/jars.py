"""Jars for the servers of tests, fetched once per user with the Ivy that comes with Spark: only Java and pyspark are needed."""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.engine.spark.archive import cache_directory
from penstock.engine.spark.java import find_java
from penstock.engine.spark.launch import spark_home

PATIENCE = 280.0
_MODULE = '<ivy-module version="2.0"><info organisation="penstock" module="jars"/><dependencies>{}</dependencies></ivy-module>'
_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" conf="*->default"/>'
_ARCHIVE = '<dependency org="{0}" name="{1}" rev="{2}" conf="*->default"><artifact name="{1}" type="zip" ext="zip"/></dependency>'
_EXACTLY = '<dependency org="{}" name="{}" rev="{}" conf="*->master"/>'


class NotToBeHad(Exception):
    """A server that cannot be had here; the text says why."""


def fetched(name: str, *coordinates: str, alone: bool = False) -> Path:
    """The directory with the jars of these coordinates (organisation:module:version) and of all they need, or of them alone."""
    return once(f"jars-{name}", lambda place: _retrieve(place, coordinates, _EXACTLY if alone else _DEPENDENCY))


def archive(name: str, coordinate: str) -> Path:
    """The zip file of this coordinate."""
    (found,) = once(f"archive-{name}", lambda place: _retrieve(place, (coordinate,), _ARCHIVE)).glob("*.zip")
    return found


def once(name: str, make: Callable[[Path], None]) -> Path:
    """A directory of the user's cache that is filled the first time it is asked for, by one process while the others wait."""
    path = cache_directory() / name
    with _lock(path.with_name(f"{name}.lock")):
        if not path.exists():
            with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=path.parent) as fresh:
                place = Path(fresh) / "made"
                place.mkdir()
                make(place)
                place.rename(path)
    return path


def _retrieve(place: Path, coordinates: tuple[str, ...], dependency: str) -> None:
    found = sorted((spark_home() / "jars").glob("ivy-*.jar"))
    if not found:
        raise NotToBeHad("this pyspark comes without the Ivy jar that fetches servers for tests")
    wanted = "".join(dependency.format(*coordinate.split(":")) for coordinate in coordinates)
    with tempfile.TemporaryDirectory(prefix="ivy-", dir=place.parent) as scratch:
        module = Path(scratch) / "ivy.xml"
        module.write_text(_MODULE.format(wanted))
        options = ["-cache", str(Path(scratch) / "cache"), "-ivy", str(module), "-m2compatible", "-confs", "default"]
        into = ["-retrieve", f"{place}/[artifact]-[revision].[ext]"]
        _run(["-cp", str(found[-1]), "org.apache.ivy.Main", *options, *into], coordinates)
    if not any(place.iterdir()):
        raise NotToBeHad(f"no jars came for {', '.join(coordinates)}")


def _run(arguments: list[str], coordinates: tuple[str, ...]) -> None:
    command = [str(find_java().path), "-XX:TieredStopAtLevel=1", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotToBeHad(f"{', '.join(coordinates)} did not come within {PATIENCE:.0f} seconds") from error
    if done.returncode:
        last = [line.strip() for line in done.stdout.splitlines() if line.strip()][-3:]
        raise NotToBeHad(f"{', '.join(coordinates)} cannot be fetched: {' / '.join(last)}")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        os.chmod(path, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
