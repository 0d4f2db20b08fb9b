"""The log that a program works with: the one of its home, or the one that a URL leads to."""

import os
from dataclasses import replace
from pathlib import Path

from penstock.errors import BadInput
from penstock.log.file import FileLog
from penstock.log.port import Log
from penstock.storage.home import Home, find_home
from penstock.storage.local import LocalStorage

VARIABLE = "PENSTOCK_LOG"


def open_log(home: Path | None = None, url: str | None = None, patience: float | None = None) -> Log:
    """The log at this URL (`kafka://host:9092`), else at that of PENSTOCK_LOG, else the embedded log in this home (None: the one
    that PENSTOCK_HOME or the working directory leads to). Makes nothing. patience: seconds without an answer after which a broker
    counts as away, where that is not to be its default."""
    url = url or os.environ.get(VARIABLE)
    if not url:
        return FileLog(LocalStorage(Home(home or find_home()).log))
    check_url(url)
    from penstock.log.kafka.log import KafkaLog
    from penstock.log.kafka.settings import KafkaSettings

    settings = KafkaSettings.of(url)
    return KafkaLog(settings if patience is None else replace(settings, patience=patience))


def check_url(url: str) -> str:
    """The URL, if it can lead to a log; BadInput with the reason if not."""
    from penstock.log.kafka.settings import SCHEME, KafkaSettings

    if not url.startswith(f"{SCHEME}://"):
        raise BadInput("that is no address of a log", hint="write it like kafka://host:9092, or leave it out for the embedded log")
    KafkaSettings.of(url)
    return url
