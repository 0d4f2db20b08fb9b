"""The lock installs with pip's hash checking: a package that is wanted with extras is pinned with them."""

import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).parents[2] / "requirements.lock"


def pinned() -> dict[str, set[str]]:
    """The extras each package of the lock is pinned with."""
    lines = [line for line in LOCK.read_text().splitlines() if re.match(r"[a-z]", line)]
    wanted = [Requirement(line.split("\\")[0]) for line in lines]
    return {canonicalize_name(each.name): each.extras for each in wanted}


def needed(package: str) -> list[Requirement]:
    try:
        stated = [Requirement(line) for line in requires(package) or []]
    except PackageNotFoundError:  # pinned for another platform or version of Python
        return []
    return [each for each in stated if each.marker is None or each.marker.evaluate({"extra": ""})]


def test_extras_are_pinned_with_their_package():
    # pip before 23.3 takes the newest release for `coverage[toml]` when only `coverage` is pinned, and refuses it.
    pins = pinned()
    extras = [(package, each) for package in pins for each in needed(package) if each.extras]
    assert extras, "the lock has a package that needs another with extras"
    missing = [f"{package} needs {each}" for package, each in extras if not each.extras <= pins[canonicalize_name(each.name)]]
    assert missing == []
