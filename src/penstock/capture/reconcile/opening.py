"""Which sources can be compared, and how a snapshot of each is opened."""

from penstock.capture.definition import CaptureDefinition
from penstock.capture.reconcile.source import SourceSnapshot
from penstock.capture.sqlite.connecting import is_sqlite
from penstock.errors import BadInput

EXACT = ("postgres", "triggers")  # engines whose records say which transaction wrote them


def check_reconcilable(definition: CaptureDefinition) -> None:
    """BadInput if the source of a capture cannot be compared with its log."""
    if definition.engine not in EXACT or is_sqlite(definition.url):
        raise BadInput(
            f"capture {definition.name!a} cannot be reconciled",
            f"its engine is {definition.engine!a}, and its records do not say what a snapshot of the source sees of them",
            hint=f"captures of PostgreSQL by {' or '.join(EXACT)} can",
        )


def open_snapshot(definition: CaptureDefinition) -> SourceSnapshot:
    if definition.engine == "triggers":
        from penstock.capture.reconcile.outbox_source import OutboxSnapshot

        return OutboxSnapshot(definition)
    from penstock.capture.reconcile.postgres_source import PostgresSnapshot

    return PostgresSnapshot(definition)
