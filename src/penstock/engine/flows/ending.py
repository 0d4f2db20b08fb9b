"""The end of a flow's input, as `--drain` writes it: whether it stands, and how to say so."""

from penstock.core.time import FOREVER
from penstock.engine.run.epoch.decision import Decision, Decisions, EngineMark
from penstock.engine.run.epoch.history import kept_marks


def ends_of(decisions: Decisions) -> set[EngineMark]:
    """The marks of +∞ by which `--drain` has ended the inputs of a flow."""
    decided = {mark for epoch in decisions.epochs() for mark in decisions.read(epoch).marks}
    return {mark for mark in decided | kept_marks(decisions.storage) if mark.time >= FOREVER and not mark.step}


def drained(decisions: Decisions, last: Decision | None) -> bool:
    """Whether the inputs of a flow were ended by `--drain`, and are still."""
    if last is None or not any(p.floor >= FOREVER for source in last.sources.values() for p in source.partitions.values()):
        return False
    return bool(ends_of(decisions))


def in_words(flow: str) -> str:
    """For whoever runs a flow whose input was ended."""
    return (
        f"the input of flow {flow} was ended by --drain: steps that judge by time call late whatever comes now. "
        f"penstock flow reopen {flow} lets it go on, penstock flow reset {flow} starts it over"
    )
