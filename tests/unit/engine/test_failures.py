"""Spark's failures as one readable error."""

import pytest
from py4j.protocol import Py4JError

from penstock.engine.spark.failures import may_be_a_row, reason, translated
from penstock.errors import SparkFailed


def test_the_line_that_says_what_happened_is_found_in_a_trace() -> None:
    text = "An error occurred\norg.apache.spark.SparkException: Job aborted\nTraceback\nZeroDivisionError: division by zero\n\tat x"
    assert reason(text) == "ZeroDivisionError: division by zero"


SPARK = """[CAST_INVALID_INPUT] The value 'abc' of the type "STRING" cannot be cast to "INT" because malformed. SQLSTATE: 22018
== SQL (line 1, position 1) ==
cast(s as int)+1
^^^^^^^^^^^^^^
"""


def test_the_reason_is_what_spark_says_and_not_the_marks_below_it() -> None:
    assert reason(SPARK) == 'CAST_INVALID_INPUT: The value \'abc\' of the type "STRING" cannot be cast to "INT" because malformed'
    assert reason(f"An error occurred\norg.apache.spark.SparkNumberFormatException: {SPARK}\tat x").startswith(
        "CAST_INVALID_INPUT: "
    )


def test_a_message_of_which_nothing_is_known_is_told_by_its_first_line() -> None:
    assert reason("something odd\n== SQL ==\n^^^^") == "something odd"


@pytest.mark.parametrize(
    ("text", "lost"),
    [(SPARK, False), ("ExecutorLostFailure (executor 1 exited)", True), ("Traceback (most recent call last)", True)],
)
def test_a_lost_executor_is_no_rows_fault(text: str, lost: bool) -> None:
    assert may_be_a_row(Py4JError(text)) is not lost


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ModuleNotFoundError: No module named 'scoring.rates'", "penstock pack --include scoring.py"),
        ("ValueError: no", "run again to repeat it"),
        (SPARK, "running again alone does not help"),
    ],
)
def test_a_failed_job_says_what_to_do(text: str, hint: str) -> None:
    with pytest.raises(SparkFailed) as failed, translated("shop", 3):
        raise Py4JError(text)
    assert failed.value.what == "a Spark job of flow shop failed in epoch 3"
    assert failed.value.detail == (reason(text),)
    assert hint in str(failed.value.hint)
