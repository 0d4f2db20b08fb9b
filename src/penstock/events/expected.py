"""Which version of a stream an append expects, and whether the stream has it."""

from enum import Enum

from penstock.errors import BadInput, VersionConflict


class Expected(Enum):
    """What an append expects of a stream, where it is no version."""

    NEW = "new"  # there is no such stream
    ANY = "any"  # nothing
    EXISTS = "exists"  # there is such a stream, at whatever version


NEW, ANY, EXISTS = Expected.NEW, Expected.ANY, Expected.EXISTS
Version = int | Expected


def check_expected(expected: object) -> Version:
    """What is expected, if it can be; BadInput if not."""
    if isinstance(expected, Expected) or (isinstance(expected, int) and not isinstance(expected, bool) and expected >= 0):
        return expected
    raise BadInput(f"{expected!r} is no version that a stream can have", hint="give a number from 0 on, NEW, ANY or EXISTS")


def judge(stream: str, expected: Version, actual: int) -> None:
    """VersionConflict if a stream at this version is not what was expected."""
    if expected is ANY or (expected is EXISTS and actual) or (expected is NEW and not actual) or expected == actual:
        return
    raise VersionConflict(stream, expected.value if isinstance(expected, Expected) else expected, actual)
