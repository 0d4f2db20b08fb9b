"""Rows that change: who takes them, and who made them change."""

from penstock.flow.definition import Known
from penstock.flow.place import At


def refuse_updates(known: Known, kind: str, at: At, hint: str) -> None:
    """Refuses rows that change, and names the step that made them so."""
    if known.step.updating:
        maker = maker_of(known)
        at.refuse(
            f"cannot {kind} {known.label}: its rows change, and this step takes rows that stay",
            f'made updating by step "{maker.name}" ({maker.step.origin})',
            hint=hint,
        )


def maker_of(known: Known) -> Known:
    """The step that first made the rows change."""
    above = next((k for k in known.inputs if k.step.updating), None)
    return maker_of(above) if above else known
