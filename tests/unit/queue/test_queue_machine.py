"""Queues against a naive model."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from faults.queue_machine import QueueMachine


def test_queues_in_memory_do_what_the_model_does() -> None:
    run_state_machine_as_test(QueueMachine, settings=settings(max_examples=120, stateful_step_count=40))


@pytest.mark.long
def test_queues_in_memory_do_what_the_model_does_in_many_runs() -> None:
    run_state_machine_as_test(QueueMachine, settings=settings(max_examples=1_500, stateful_step_count=60))
