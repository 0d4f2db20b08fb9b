"""The Spark session a flow runs on, and the start and end of the driver's JVM."""

import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

from penstock.engine.spark import archive, launch
from penstock.engine.spark.cluster import AUTHENTICATE, answering, is_local, with_secret
from penstock.engine.spark.executors import PACK, settings_of, ship
from penstock.engine.spark.java import Java, find_java
from penstock.engine.spark.jvm import ended, how_it_ended
from penstock.engine.spark.limits import check_open_files
from penstock.engine.spark.pinned import pin, refuse_other_meaning
from penstock.engine.spark.scratch import remove_scratch, scratch
from penstock.engine.spark.settings import environment_for, for_command_line, local_master, settings
from penstock.errors import EngineError, PenstockError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]
NOTHING: Mapping[str, str] = {}
_EXIT_PATIENCE = 10.0
_LAST_WORDS = 1.0  # seconds in which a JVM whose connections broke has ended
_LOST = (
    "what it said is the cause; if it was killed or found no memory, ask for less (spark.driver.memory=1g) or end other programs; "
    "--verbose shows all it says"
)


def start_session(
    app: str,
    master: str | None = None,
    conf: Mapping[str, str] = NOTHING,
    *,
    buckets: int = 2,
    on_progress: Progress = lambda line: None,
    pinned: bool = True,
) -> "SparkSession":
    """A session of its own (SQL settings, temporary views) on this process's Spark, which is started if there is none yet.

    master: as for Spark; None is local[cores]. conf: any Spark settings; they win over ours, but for those that change what
    expressions mean, which are refused; not pinned: these too may be the user's. buckets: how many parts keyed state has.
    on_progress is told, in a few words, what is being waited for. Raises NoJava, or EngineError if Spark does not start."""
    if pinned:
        refuse_other_meaning(conf)
    wanted = _started(app, master, conf, buckets, on_progress)
    with _while_starting():
        _quieten()
        session = _session(wanted)
        if pinned:
            pin(session)
        return session


def start_context(
    app: str, master: str | None = None, conf: Mapping[str, str] = NOTHING, *, on_progress: Progress = lambda line: None
) -> "SparkContext":
    """This process's Spark without a session: enough for tasks, and ready a second or two sooner."""
    refuse_other_meaning(conf)
    _started(app, master, conf, 2, on_progress)
    return _context_class()._active_spark_context


def _started(app: str, master: str | None, conf: Mapping[str, str], buckets: int, on_progress: Progress) -> dict[str, str]:
    """Starts this process's Spark if there is none yet; the settings it was, or would have been, given."""
    master = master or conf.get("spark.master") or local_master()
    pack = conf.get(PACK)
    wanted = settings(app, master, settings_of(pack) | with_secret(conf), buckets, scratch())
    if _context_class()._active_spark_context is None:
        answering(master)
        if not is_local(master) and wanted.get(AUTHENTICATE) != "true":
            on_progress(f"{master} has no secret: whoever reaches it, every user of its machines too, can run code on it")
        with launch.environment(environment_for(master, wanted)):
            _start(wanted, master, on_progress)
        if not is_local(master):
            ship(_context_class()._active_spark_context, pack, scratch(), on_progress)
    return wanted


def start_recording(path: str) -> "tuple[SparkSession, subprocess.Popen[bytes]]":
    """A local session whose JVM, when it ends, writes the classes it loaded to the path; and that JVM."""
    wanted = settings("recording", local_master(), NOTHING, 2, scratch())
    with launch.environment(environment_for(wanted["spark.master"], wanted)):
        gateway = _own(find_java(), wanted, [f"-XX:ArchiveClassesAtExit={path}"])
        _open_context(wanted, gateway)
        return _session(wanted), gateway.proc


def _context_class() -> Any:
    return import_module("pyspark").SparkContext if "pyspark" in sys.modules else _NotYet


class _NotYet:
    """Stands for SparkContext as long as pyspark is not imported: it is imported while the JVM starts."""

    _active_spark_context = None
    _gateway = None


def _start(wanted: Mapping[str, str], master: str, on_progress: Progress) -> None:
    """A new Spark context; in a new JVM, unless this process has one from an earlier session. master: as it was asked for."""
    if _context_class()._gateway is not None:
        return _open_context(wanted, None)
    java = find_java()
    check_open_files()
    on_progress(f"starting Spark on {master} (Java {java.major})")
    gateway = _open_jvm(java, wanted, on_progress)
    atexit.register(_end, gateway.proc, java, os.getpid())
    return _open_context(wanted, gateway)


def forget() -> None:
    """Lets go of a JVM that has ended: the next use starts another."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    atexit.unregister(_end)
    gateway, context = SparkContext._gateway, SparkContext._active_spark_context
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    with suppress(Exception):  # nobody answers there any more
        context._accumulatorServer.shutdown()
    with suppress(Exception):
        gateway.shutdown()


def _open_context(wanted: Mapping[str, str], gateway: Any) -> None:
    from pyspark import SparkContext

    try:
        with _own_interrupt():
            SparkContext(conf=_spark_conf(wanted), gateway=gateway)
    except Exception as error:
        code = ended(_LAST_WORDS)
        what = f"Spark did not start on {wanted['spark.master']}"
        if code is None:
            raise EngineError(what, _first_line(error), *_log_tail(), hint="--verbose says more") from error
        raise EngineError(f"{what}: the JVM {how_it_ended(code)}", *_log_tail(), hint=_LOST) from error


@contextmanager
def _while_starting(process: "subprocess.Popen[bytes] | None" = None) -> Iterator[None]:
    """A JVM that ends meanwhile is an error of its own, with the last it said; process: the JVM, if it is not Spark's yet."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        code = _code(process) if process else ended(_LAST_WORDS)
        if code is None:
            raise
        raise EngineError(f"the JVM {how_it_ended(code)} while it was being started", *_log_tail(), hint=_LOST) from error


def _code(process: "subprocess.Popen[bytes]") -> int | None:
    try:
        return process.wait(_LAST_WORDS)
    except subprocess.TimeoutExpired:
        return None


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Whoever handles Ctrl-C goes on doing so: a new context would have it cancel all jobs, and an epoch could not finish."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _spark_conf(wanted: Mapping[str, str]) -> Any:
    from pyspark import SparkConf

    return SparkConf().setAll(list(wanted.items()))


def _first_line(error: Exception) -> str:
    return next(iter(str(getattr(error, "java_exception", error)).splitlines()), type(error).__name__)


def _quieten() -> None:
    """PySpark prints every exception with a query in it, whole Java trace included, although it raises it as well."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _session(wanted: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate().newSession()
    for name, value in wanted.items():
        if name.startswith("spark.sql.") and session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def _open_jvm(java: Java, wanted: Mapping[str, str], on_progress: Progress) -> Any:
    """PySpark's gateway to a new JVM: our own launch where it can be, else PySpark's."""
    reason = launch.why_plain()
    if reason is None:
        try:
            return _own(java, wanted, _archive_options(java))
        except (PenstockError, OSError, ValueError, subprocess.SubprocessError) as error:
            reason = f"our own launch failed: {_first_line(error)}"
    on_progress(f"starting the JVM PySpark's way ({reason})")
    return _plain(wanted)


def _own(java: Java, wanted: Mapping[str, str], options: Sequence[str]) -> Any:
    with _log() as log:
        process = launch.start(launch.command(java, for_command_line(wanted), options), scratch(), log)
    for module in ("pyspark", "pyarrow", "polars"):  # useful while the JVM starts
        import_module(module)
    with _while_starting(process):
        return launch.connected(process, scratch()).connect()


def _plain(wanted: Mapping[str, str]) -> Any:
    from pyspark.java_gateway import launch_gateway

    with _log() as log:
        try:
            return launch_gateway(_spark_conf(for_command_line(wanted)), popen_kwargs={"stdout": log, "stderr": log})
        except Exception as error:
            raise EngineError("the JVM did not start", _first_line(error), *_log_tail(), hint=_LOST) from error


def _log() -> IO[bytes]:
    """Where the JVM's own words go: a file, or with PENSTOCK_SPARK_LOG=- (`--verbose`) our standard error."""
    if os.environ.get("PENSTOCK_SPARK_LOG") == "-":
        return os.fdopen(os.dup(2), "wb")
    return open(os.environ.get("PENSTOCK_SPARK_LOG") or scratch() / "spark.log", "ab")


def _log_tail() -> list[str]:
    """The last the JVM said, without Java's stack frames."""
    path = scratch() / "spark.log"
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return [line for line in lines if line.strip() and not line.lstrip().startswith("at ")][-3:]


def _archive_options(java: Java) -> list[str]:
    with suppress(OSError):  # no cache directory to be had: then without
        path = archive.archive_path(java)
        return [f"-XX:SharedArchiveFile={path}", "-Xlog:disable"] if archive.usable(path) else []
    return []


def _end(process: "subprocess.Popen[bytes]", java: Java, owner: int) -> None:
    """At the end of this process: stop Spark, end its JVM, clean up, and have the archive built if there was none."""
    if os.getpid() != owner:
        return  # a forked child: Spark is its parent's
    end_jvm(process, _EXIT_PATIENCE)
    remove_scratch()
    with suppress(OSError):  # no cache directory to be had: then without
        if launch.why_plain() is None and not archive.archive_path(java).exists():
            archive.build_in_background()


def end_jvm(process: "subprocess.Popen[bytes]", patience: float) -> None:
    """Stops Spark and closes the JVM's standard input, on which it ends; kills it if it takes too long."""
    context = _context_class()._active_spark_context
    if context is not None:
        with suppress(Exception):  # the JVM may be gone already
            context.stop()
            context._gateway.shutdown()  # so that no object collected later still writes to it, and complains
    assert process.stdin
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
