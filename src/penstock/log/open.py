"""The log that a program works with: the one of its home, or the one that a URL leads to."""

import os
from pathlib import Path
from typing import Protocol

from penstock.core.schemes import Schemes
from penstock.log.file.log import FileLog
from penstock.log.port import Log
from penstock.storage.home import Home, find_home
from penstock.storage.local import LocalStorage

VARIABLE = "PENSTOCK_LOG"


class LogOpener(Protocol):
    """Opens the logs of a scheme."""

    def check(self, url: str) -> None:
        """BadInput with the reason if the URL cannot lead to a log. Asks nobody."""
        ...

    def open(self, url: str, patience: float | None) -> Log:
        """The log there. Makes nothing. patience: seconds without an answer after which a broker counts as away; None: its own."""
        ...


def _kafka() -> LogOpener:
    from penstock.log.kafka.log import KafkaOpener

    return KafkaOpener()


SCHEMES = Schemes[LogOpener]("a log", "penstock.logs", hint="write it like kafka://host:9092, or leave it out for the embedded log")
SCHEMES.add("kafka", _kafka)


def open_log(home: Path | None = None, url: str | None = None, patience: float | None = None) -> Log:
    """The log at this URL (`kafka://host:9092`), else at that of PENSTOCK_LOG, else the embedded log in this home (None: the one
    that PENSTOCK_HOME or the working directory leads to). Makes nothing. patience: seconds without an answer after which a broker
    counts as away, where that is not to be its default."""
    url = url or os.environ.get(VARIABLE)
    if not url:
        return FileLog(LocalStorage(Home(home or find_home()).log))
    return SCHEMES.find(check_url(url)).open(url, patience)


def check_url(url: str) -> str:
    """The URL, if it can lead to a log; BadInput with the reason if not."""
    SCHEMES.find(url).check(url)
    return url
