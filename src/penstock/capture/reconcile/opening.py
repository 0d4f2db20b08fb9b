"""Which sources can be compared, and how a snapshot of each is opened."""

from penstock.capture.definition import CaptureDefinition
from penstock.capture.reconcile.source import SourceSnapshot
from penstock.errors import BadInput

EXACT = ("postgres",)  # engines whose records say which transaction wrote them


def check_reconcilable(definition: CaptureDefinition) -> None:
    """BadInput if the source of a capture cannot be compared with its log."""
    if definition.engine not in EXACT:
        raise BadInput(
            f"capture {definition.name!a} cannot be reconciled: its engine is {definition.engine!a}",
            hint=f"captures of {', '.join(EXACT)} can",
        )


def open_snapshot(definition: CaptureDefinition) -> SourceSnapshot:
    from penstock.capture.reconcile.postgres_source import PostgresSnapshot

    return PostgresSnapshot(definition)
