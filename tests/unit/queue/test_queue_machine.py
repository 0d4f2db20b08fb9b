"""Queues against a naive model, in memory and on the log."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from faults.queue_machine import LogQueueMachine, QueueMachine


def test_queues_in_memory_do_what_the_model_does() -> None:
    run_state_machine_as_test(QueueMachine, settings=settings(max_examples=120, stateful_step_count=40))


def test_queues_on_the_log_do_what_the_model_does() -> None:
    run_state_machine_as_test(LogQueueMachine, settings=settings(max_examples=40, stateful_step_count=40))


@pytest.mark.long
@pytest.mark.parametrize("machine", [QueueMachine, LogQueueMachine])
def test_queues_do_what_the_model_does_in_many_runs(machine: type[QueueMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=1_000, stateful_step_count=60))
