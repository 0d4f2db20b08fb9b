"""Positions in PostgreSQL's write-ahead log: numbers here, `16/B374D848` for the server and for people."""

import re

from penstock.errors import BadInput

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", re.ASCII)


def lsn_of(text: str) -> int:
    """The number; BadInput if the text is no position."""
    found = _TEXT.fullmatch(text)
    if not found:
        raise BadInput(f"{text!a} is no position in a write-ahead log", hint="such a position looks like 16/B374D848")
    return int(found[1], 16) << 32 | int(found[2], 16)


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
