"""Runs a Spark stream into a topic, exactly once: what `penstock ingest` does."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.names import check_name
from penstock.core.time import duration
from penstock.engine.run.signals import ended_by_signals, stopped_by_signals
from penstock.engine.spark.failures import reason
from penstock.errors import BadInput, Mismatch, NotFound, PenstockError, SparkFailed
from penstock.log.open import open_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_LOOK = 0.2  # seconds between two looks at whether somebody wants us to stop
# A Penstock error somewhere in Spark's long text: its name, its first line, and the indented lines behind it.
_OURS = re.compile(r"penstock\.errors\.(\w+): (?P<what>[^\n]+)(?P<more>(?:\n  [^\n]+)*)")


@dataclass(frozen=True)
class Intake:
    """What is to be ingested, and how. `settings` are those of the topic, for one that is still to be made."""

    topic: str
    writer: str
    checkpoint: str
    home: Path
    once: bool = False
    every: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ingested:
    """What a run added to the topic."""

    topic: str
    rows: int
    batches: int

    def __str__(self) -> str:
        return f"ingested {self.rows:,} rows into {self.topic} ({self.batches:,} {'batch' if self.batches == 1 else 'batches'})"


def ingest(stream: "Callable[[SparkSession], DataFrame]", order: Intake, say: Callable[[str], None]) -> Ingested:
    """Runs the stream into the topic until SIGINT or SIGTERM, or with `once` to the end of what is there."""
    trigger = _checked(order)
    from penstock.engine.datasource.format import register
    from penstock.engine.datasource.ingest import written
    from penstock.engine.spark.session import start_session

    stop = threading.Event()
    since = _ends(order)
    with ended_by_signals(), _in_words():
        spark = start_session("penstock ingest", order.master, order.conf, on_progress=say, pinned=False)
        register(spark, order.home)
        frame = _streaming(stream(spark))
        say(f"ingesting into {order.topic} as {order.writer}" + ("" if order.once else "; Ctrl-C stops"))
        with stopped_by_signals(stop, say, "stopping"):
            _run(_start(frame, order, trigger), stop)
    topic = open_log(order.home).topic(order.topic)
    return Ingested(order.topic, *written(topic, order.writer, since or dict.fromkeys(topic.ends(), 0)))


def _checked(order: Intake) -> dict[str, Any]:
    """Spark's trigger; errors that need no Spark to be found are found here."""
    check_name(order.topic)
    check_name(order.writer, "writer")
    if order.once:
        return {"availableNow": True}
    every = duration(order.every, "every") if order.every else None
    return {"processingTime": f"{int(every.total_seconds() * 1000)} milliseconds" if every else "0 seconds"}


def _ends(order: Intake) -> dict[int, int]:
    """The ends of the topic before the run; nothing if it is not there yet."""
    try:
        topic = open_log(order.home).topic(order.topic)
    except NotFound:
        return {}
    if topic.spec.writer:
        raise Mismatch(f"topic {order.topic} is written by flow {topic.spec.writer!r}, which alone may write it")
    return {number: end.next for number, end in topic.ends().items()}


def _streaming(frame: object) -> "DataFrame":
    from pyspark.sql import DataFrame

    if not isinstance(frame, DataFrame):
        raise BadInput(f"stream(spark) returned a {type(frame).__name__}, not a DataFrame")
    if not frame.isStreaming:
        raise BadInput(
            "stream(spark) returned a DataFrame that is no stream",
            hint='begin it with spark.readStream; what is not a stream is written with df.write.format("penstock")',
        )
    return frame


def _start(frame: "DataFrame", order: Intake, trigger: Mapping[str, Any]) -> "StreamingQuery":
    options = {**order.settings, "topic": order.topic, "home": str(order.home), "writer": order.writer}
    writing = frame.writeStream.format("penstock").options(checkpointLocation=order.checkpoint, **options).outputMode("append")
    return writing.queryName(f"penstock ingest {order.writer}").trigger(**trigger).start()


def _run(query: "StreamingQuery", stop: threading.Event) -> None:
    try:
        while not query.awaitTermination(_LOOK):
            if stop.is_set():
                return
    finally:
        query.stop()


@contextmanager
def _in_words() -> Iterator[None]:
    """Spark's errors as one paragraph: ours from inside it as they were, others by the line that says what happened."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise as_error(str(error)) from error


def as_error(text: str) -> PenstockError:
    """The error that a long trace is about."""
    import penstock.errors

    found = _OURS.search(text)
    kind = getattr(penstock.errors, found[1], SparkFailed) if found else SparkFailed
    if not found:
        return kind("the stream failed", reason(text), hint="--verbose shows Spark's own words")
    lines = [line.strip() for line in found["more"].splitlines() if line.strip()]
    hints = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")]
    detail = [line for line in lines if not line.startswith("hint: ")]
    return kind(found["what"], *detail, hint=hints[0] if hints else None)
