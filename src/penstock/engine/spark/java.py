"""Finds the Java that Spark will run on, without starting it where its version is written down."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from penstock.errors import NoJava

LEAST = 17
INSTALL = "Debian/Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17; or set JAVA_HOME"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')


class Java(NamedTuple):
    path: Path  # of the program
    major: int
    text: str  # the exact build: what class-data archives depend on


def find_java() -> Java:
    """The Java of JAVA_HOME, else of the PATH; NoJava, with what to install, if there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if not found:
        where = (
            f"JAVA_HOME is {home}, and there is no bin/java in it" if home else "JAVA_HOME is not set and java is not on the PATH"
        )
        raise NoJava(f"Spark needs Java {LEAST} or later, and none was found", where, hint=INSTALL)
    path = Path(found).resolve()
    text = _written(path) or _asked(path)
    major = int(text.removeprefix("1.").split(".")[0].split("+")[0].split("-")[0])
    if major < LEAST:
        raise NoJava(f"Spark needs Java {LEAST} or later, and {found} is Java {major}", hint=INSTALL)
    return Java(path, major, text)


def _written(path: Path) -> str | None:
    """What the JDK's own `release` file says."""
    release = path.parent.parent / "release"
    if not release.is_file():
        return None
    entries = dict(line.split("=", 1) for line in release.read_text().splitlines() if "=" in line)
    version = entries.get("JAVA_RUNTIME_VERSION") or entries.get("JAVA_VERSION")
    return version.strip('"') if version else None


def _asked(path: Path) -> str:
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"{path} does not start", str(error), hint=INSTALL) from error
    found = _VERSION.search(done.stderr)
    if not found:
        raise NoJava(f"{path} does not say its version", *done.stderr.splitlines()[:3], hint=INSTALL)
    return found[0].split('"')[1]
