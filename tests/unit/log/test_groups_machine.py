"""Groups against a naive model, in memory and in SQLite."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from faults.groups_machine import GroupMachine, SqliteGroupMachine


def test_groups_in_memory_do_what_the_model_does() -> None:
    run_state_machine_as_test(GroupMachine, settings=settings(max_examples=100, stateful_step_count=40))


def test_groups_in_sqlite_do_what_the_model_does() -> None:
    run_state_machine_as_test(SqliteGroupMachine, settings=settings(max_examples=25, stateful_step_count=30))


@pytest.mark.long
@pytest.mark.parametrize("machine", [GroupMachine, SqliteGroupMachine])
def test_groups_do_what_the_model_does_in_many_runs(machine: type[GroupMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=300, stateful_step_count=60))
