"""Who may write to a sink: the flow's own state, and no driver that was replaced."""

from penstock.errors import Mismatch
from penstock.sinks.port import Marker


def admitted(what: str, flow: str, found: Marker | None, ours: Marker, start_over: str) -> int:
    """The last epoch that is there, if we may write behind it (-1: none yet); else Mismatch. what: the sink, for people;
    start_over: what to do where it belongs to another life of the flow."""
    if found is None:
        return -1
    if found.incarnation != ours.incarnation:
        raise Mismatch(
            f"{what} belongs to another incarnation of flow {flow!r}",
            f"it was written from state {found.incarnation}, this is state {ours.incarnation}",
            hint=start_over,
        )
    if found.generation > ours.generation:
        raise Mismatch(
            f"{what} is written by a later start of flow {flow!r}",
            f"start {found.generation} wrote epoch {found.epoch}, this is start {ours.generation}",
            hint="another driver has taken over; stop this one",
        )
    return found.epoch
