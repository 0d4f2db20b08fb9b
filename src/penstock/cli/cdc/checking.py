"""penstock cdc check: looks at a database and says what mends it."""

from collections.abc import Sequence
from dataclasses import replace

from penstock.capture.definition import CaptureDefinition, Secret
from penstock.capture.kind import kind_of
from penstock.cli.cdc.adding import split
from penstock.cli.cdc.findings import print_findings
from penstock.cli.cdc.url import check_url, engine_for
from penstock.errors import Disconnected, NotFollowable

UNHEALTHY = 4


def run_check(url: str, patterns: Sequence[str], engine: str | None, secret: Secret, output: str | None) -> int:
    """Prints what was found; the exit code."""
    definition = CaptureDefinition("", engine_for(check_url(url), engine, None), url, (), secret)
    kind, wanted = kind_of(definition.engine), split(patterns)
    try:
        tables = tuple(kind.tables(definition, wanted)) if wanted else ()
    except (Disconnected, NotFollowable):  # which is a finding
        tables = ()
    findings = kind.check(replace(definition, tables=tables))
    print_findings(findings, output)
    return UNHEALTHY if any(each.level == "error" for each in findings) else 0
