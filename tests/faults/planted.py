"""What bugs on purpose have in common where a machine compares with a model."""

from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from penstock.core.time import FixedClock
from penstock.errors import PenstockError
from penstock.log.groups.leases import Beat, ManualClock

QUICK = settings(phases=[Phase.generate], database=None, derandomize=True)


def caught_by(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> bool:
    try:
        run_state_machine_as_test(machine, settings=settings(QUICK, max_examples=examples, stateful_step_count=steps))
    except (AssertionError, PenstockError, KeyError, ExceptionGroup):
        return True
    return False


class WallLeases(ManualClock):
    """The clock that somebody sets, taken for the one that nobody does."""

    def __init__(self, wall: FixedClock, even: ManualClock) -> None:
        self.wall, self.even, self.start = wall, even, wall.now()

    def beat(self) -> Beat:
        return Beat("boot", self.even.at + self.wall.now() - self.start)
