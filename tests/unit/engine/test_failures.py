"""Spark's failures as one readable error."""

import pytest
from py4j.protocol import Py4JError

from penstock.engine.failures import reason, translated
from penstock.errors import SparkFailed


def test_the_line_that_says_what_happened_is_found_in_a_trace() -> None:
    text = "An error occurred\norg.apache.spark.SparkException: Job aborted\nTraceback\nZeroDivisionError: division by zero\n\tat x"
    assert reason(text) == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ModuleNotFoundError: No module named 'scoring.rates'", "penstock pack --include scoring.py"),
        ("ValueError: no", "run again to repeat it"),
    ],
)
def test_a_failed_job_says_what_to_do(text: str, hint: str) -> None:
    with pytest.raises(SparkFailed) as failed, translated("shop", 3):
        raise Py4JError(text)
    assert failed.value.what == "a Spark job of flow shop failed in epoch 3"
    assert failed.value.detail == (text,)
    assert hint in str(failed.value.hint)
