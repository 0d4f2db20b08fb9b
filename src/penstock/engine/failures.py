"""Spark's failures as one readable error, with the Java trace kept as the cause."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import SparkFailed

_PYTHON_LINE = re.compile(r"^(\w[\w.]*(?:Error|Exception|Interrupt)\b.*)$", re.MULTILINE)


@contextmanager
def translated(flow: str, epoch: int) -> Iterator[None]:
    """Runs Spark work; Py4J and PySpark errors come out as SparkFailed."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        why = reason(str(error))
        raise SparkFailed(f"a Spark job of flow {flow} failed in epoch {epoch}", why, hint=_hint(why)) from error
    except (ConnectionError, EOFError) as error:
        raise SparkFailed(
            f"Spark went away while flow {flow} ran epoch {epoch}", str(error), hint="nothing of this epoch was decided; run again"
        ) from error


def _hint(why: str) -> str:
    missing = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", why)
    if missing:
        name = missing[1].partition(".")[0]
        return f"executors do not have {name}: penstock pack --include {name}.py, or --archive --with {name}, then run --pack FILE"
    return "nothing of this epoch was decided; run again to repeat it, with --verbose for the Java trace"


def reason(text: str) -> str:
    """The line of a long trace that says what happened."""
    lines = _PYTHON_LINE.findall(text)
    python = [line for line in lines if not line.startswith(("org.apache", "java.", "py4j", "scala"))]
    chosen = (python or lines or text.strip().splitlines() or ["no message"])[-1]
    return chosen.strip()[:300]
