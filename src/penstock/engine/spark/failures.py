"""Spark's failures as one readable error, with the Java trace kept as the cause."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.engine.spark.analyze import first_line
from penstock.engine.spark.jvm import ended
from penstock.errors import DiskFull, SparkFailed, SparkGone
from penstock.plan import Step

_PYTHON_LINE = re.compile(r"^(\w[\w.]*(?:Error|Exception|Interrupt)\b.*)$", re.MULTILINE)
_CONDITION = re.compile(r"^(?:[\w.$]+: )?\[([A-Z_0-9]+(?:\.[A-Z_0-9]+)*)\] (.+)$", re.MULTILINE)  # as Spark names its own errors
_STATE = re.compile(r"SQLSTATE: (\w{5})")
_LOST = ("ExecutorLostFailure", "Traceback (most recent call last)", "Python worker exited")
_ABORTED = "Job aborted due to stage failure"
_AGAIN = "nothing of this epoch was decided; run again to repeat it, with --verbose for the Java trace"
_MEND = (
    "nothing of this epoch was decided, and running again alone does not help: change the expression; --verbose has the Java trace"
)

_FULL = re.compile("No space left on device|Disk quota exceeded")
_LAST = 5.0  # seconds that a JVM may take to be gone after it was last heard
_ROOM = "make room where Spark keeps its files (spark.local.dir, else the temporary directory); a live run goes on by itself"


@contextmanager
def translated(flow: str, epoch: int, step: Step | None = None) -> Iterator[None]:
    """Runs Spark work, of this step if there is one; Py4J and PySpark errors come out as SparkFailed."""
    from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
    from pyspark.errors import PySparkException

    where = [f'step "{step.name}" ({step.origin})'] if step else []
    try:
        yield
    except (Py4JError, PySparkException) as error:
        lost = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)  # Java itself says nothing any more
        if isinstance(error, Py4JNetworkError) or (lost and ended(_LAST) is not None):
            raise _gone(flow, epoch, error) from error
        text = str(error)
        if _FULL.search(text):
            raise DiskFull(f"no space left for a Spark job of flow {flow} in epoch {epoch}", reason(text), hint=_ROOM) from error
        what = f"a Spark job of flow {flow} failed in epoch {epoch}"
        raise SparkFailed(what, *where, reason(text), hint=_hint(text)) from error
    except (ConnectionError, EOFError) as error:
        raise _gone(flow, epoch, error) from error
    except OSError as error:
        if ended(_LAST) is None:
            raise
        raise _gone(flow, epoch, error) from error  # a JVM that ends in order takes its temporary files along


def _gone(flow: str, epoch: int, error: Exception) -> SparkGone:
    what = f"Spark went away while flow {flow} ran epoch {epoch}"
    return SparkGone(what, str(error)[:300], hint="nothing of this epoch was decided; run again")


def may_be_a_row(error: Exception) -> bool:
    """Whether an expression may have failed on a row: not where Spark, an executor or a process went away, or a disk is full."""
    from py4j.protocol import Py4JNetworkError

    text = str(error)
    return not isinstance(error, Py4JNetworkError) and not any(sign in text for sign in _LOST) and not _FULL.search(text)


def _hint(text: str) -> str:
    missing = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", text)
    if missing:
        name = missing[1].partition(".")[0]
        return f"executors do not have {name}: penstock pack --include {name}.py, or --archive --with {name}, then run --pack FILE"
    state = _STATE.search(text)
    return _MEND if state and state[1][:2] in ("22", "42") else _AGAIN  # data that cannot be used, and expressions that cannot


def reason(text: str) -> str:
    """The line of a long trace that says what happened: Python's, else the one with Spark's condition, else Java's."""
    lines = _PYTHON_LINE.findall(text)
    python = [line for line in lines if not line.startswith(("org.apache", "java.", "py4j", "scala"))]
    if python:
        return str(python[-1]).strip()[:300]
    condition = _CONDITION.search(text)
    if condition:
        return f"{condition[1]}: {first_line(condition[2])}"[:300]
    said = [line for line in lines if _ABORTED not in line]
    return ((said or lines or text.strip().splitlines() or ["no message"])[-1 if lines else 0]).strip()[:300]
