"""URLs of databases as users write them: never with a password, and which engine follows them where none is named."""

import re
from urllib.parse import parse_qsl, urlsplit

from penstock.errors import BadInput

ENGINES = {"postgresql": "postgres", "postgres": "postgres", "sqlite": "triggers"}
OTHERS = "debezium"  # whatever database it is
POLL = "poll"
_SECRET = re.compile(r"password|passwd|secret|token", re.IGNORECASE)
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:[0-9]+)?")
_WAYS = "--password-env VARIABLE, --password-file FILE, or a line in ~/.pgpass (or where PGPASSFILE leads)"


def check_url(url: str) -> str:
    """The URL, if it is one and has no password. It is not repeated where it may have one."""
    if "://" not in url:
        if _SECRET.search(url):
            raise _with_password()
        raise BadInput("that is no URL of a database", hint="write it like postgresql://user@host:5432/database")
    try:
        parts = urlsplit(url)
        if parts.password is not None or _like_one(url) or any(_SECRET.search(name) for name, _ in parse_qsl(parts.query)):
            raise _with_password()
        if not all(_HOST.fullmatch(host) for host in parts.netloc.rpartition("@")[2].split(",")):
            raise ValueError("a port is a number")
    except ValueError:
        raise BadInput(
            "the URL of the database cannot be read", hint="write it like postgresql://user@host:5432/database"
        ) from None
    return url


def engine_for(url: str, engine: str | None, poll: str | None) -> str:
    """The engine that was asked for, else the one that suits the URL."""
    if poll is not None and engine not in (None, POLL):
        raise BadInput(f"--poll is an engine of its own; with --engine {engine} it means nothing", hint="leave one of them out")
    if poll is None and engine == POLL:
        raise BadInput("--engine poll needs to know how often", hint='--poll "1 hour"')
    return POLL if poll is not None else engine or ENGINES.get(urlsplit(url).scheme, OTHERS)


def _like_one(url: str) -> bool:
    """Whether a password with characters that end the host's part of a URL may be in it: user:pa/ss@host."""
    rest = url.partition("://")[2]
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    return "@" not in host and re.search(r":[^@=&]*@", rest) is not None


def _with_password() -> BadInput:
    return BadInput(
        "the URL has a password, which everybody would see in the list of processes and in the history of the shell",
        "it was not used; as it has been there now, change it",
        hint=f"leave it out and give it in one of three ways: {_WAYS}",
    )
