"""penstock cdc run: captures in the foreground, until Ctrl-C or until they have caught up."""

import time
from collections.abc import Sequence

from penstock.capture.registry import Captures
from penstock.cli.cdc.hosting import Host, Hosted, names_once
from penstock.cli.cdc.telling import Telling
from penstock.cli.lines import Lines
from penstock.cli.topic.produce import INTERRUPTED, Interrupt
from penstock.log.open import open_log


def run_captures(names: Sequence[str], catch_up: bool, quiet: bool, limit: int) -> int:
    """Runs them; the exit code."""
    lines, captures = Lines(quiet), Captures()
    definitions = [captures.get(name) for name in names_once(names)]
    telling = Telling(definitions, lines.say, lines.rewrite if lines.live else None)
    host = Host(names, open_log(), telling.report, limit)
    with Interrupt(host.stop) as interrupt:
        try:
            host.start(catch_up)
            host.join()
        finally:
            lines.wipe()
            for each in host.hosted:
                _close(each, telling, lines, catch_up and not interrupt.asked)
    return INTERRUPTED if interrupt.asked and catch_up else 0


def _close(hosted: Hosted, telling: Telling, lines: Lines, caught_up: bool) -> None:
    how = "failed" if hosted.failure else "caught up" if caught_up else "stopped"
    seconds = (hosted.ended or time.monotonic()) - hosted.began
    lines.close_with(telling.closing(hosted.definition, hosted.run.progress, seconds, how))
