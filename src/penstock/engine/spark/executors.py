"""Executors of a cluster, before the first epoch: they get penstock, and are asked whether they can do the work.

What is wrong with one of them comes out as one paragraph that says what is missing where, not as a Java trace in some later epoch.
"""

import json
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from penstock.engine.spark.failures import reason
from penstock.engine.spark.pack import CODE, ENVIRONMENT, PYTHON, pack_code, python_version, read_manifest
from penstock.errors import EngineError, PenstockError
from penstock.log.port import Log

PACK = "spark.penstock.pack"  # a setting for --conf: what `penstock pack` made
LIBRARIES = ("penstock", "numpy", "pyarrow", "polars", "orjson", "crc32c", "sqlglot", "cloudpickle")
_UNPACKED = "penstock-env"  # where executors find an environment, in their working directory
_FIRST = 120.0  # seconds that the first executor may take to come
_TOGETHER = 10.0  # seconds that one waits for the others, so that each is asked
Say = Callable[[str], None]


class Found(NamedTuple):
    """What one executor said."""

    where: str
    versions: dict[str, str]  # module -> version
    missing: dict[str, str]  # module -> why it cannot be imported
    home: str  # why the home cannot be reached; "": it can


def settings_of(pack: str | None) -> dict[str, str]:
    """What Spark is told so that executors run in a packed environment. Checks that the pack fits."""
    if not pack:
        return {}
    path = Path(pack)
    manifest = read_manifest(path)
    manifest.check(path)
    if manifest.kind != ENVIRONMENT:
        return {}
    return {"spark.archives": f"{path.resolve()}#{_UNPACKED}", "spark.pyspark.python": f"./{_UNPACKED}/{PYTHON}"}


def ship(context: Any, pack: str | None, scratch: Path, say: Say) -> None:
    """Penstock as it is here goes to every executor, so that both sides are of one version, whatever is installed there."""
    if pack and read_manifest(Path(pack)).kind == ENVIRONMENT:
        return say(f"executors get {Path(pack).name}: Python, the libraries and penstock ({_megabytes(Path(pack))})")
    path = Path(pack) if pack else scratch / "penstock.zip"
    manifest = read_manifest(path) if pack else pack_code(path)
    assert manifest.kind == CODE
    context.addPyFile(str(path))
    with_ = f" and {', '.join(manifest.included)}" if manifest.included else ""
    return say(f"executors get penstock {manifest.penstock}{with_} ({_megabytes(path)}); Python and the libraries are their own")


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


def ask(context: Any, home: Path, log: Log, say: Say) -> None:
    """Waits for executors and asks each what it can import, and whether it reaches home and log. EngineError if one cannot work."""
    _wait(context, say)
    tasks = _executors(context)
    rendezvous = home / f".reach-{uuid.uuid4().hex}"
    rendezvous.mkdir(parents=True, mode=0o700)
    try:
        answers = _ask_executors(context, tasks, LIBRARIES, rendezvous)
    finally:
        shutil.rmtree(rendezvous, ignore_errors=True)
    found = {answer.where: answer for answer in answers}
    here = versions_here(LIBRARIES)
    other = differences(found.values(), {"penstock": here["penstock"]})
    wrong = problems(found.values(), home) or other or _without_log(context, tasks, log)
    if wrong:
        raise EngineError("executors cannot run this flow", *wrong, hint=_advice(found.values()))
    say(f"{_count(len(found))} of {context.master}, {context.defaultParallelism} tasks at a time")
    for line in differences(found.values(), here):
        say(line)


def _count(executors: int) -> str:
    return f"{executors} executor{'' if executors == 1 else 's'}"


def _wait(context: Any, say: Say) -> None:
    """Until there is an executor: a job would wait for one without end and without a word."""
    started, announced = time.monotonic(), False
    while not _executors(context):
        if time.monotonic() - started > _FIRST:
            raise EngineError(
                f"{context.master} gave no executor within {_FIRST:.0f} seconds",
                f"asked for: {_asked(context)}",
                hint="see in the cluster's own pages whether it has so much free; ask for less with --conf, or end what runs there",
            )
        if time.monotonic() - started > 5 and not announced:
            announced = True
            say(f"waiting for {context.master} to give an executor ({_asked(context)})")
        time.sleep(0.05)


def _executors(context: Any) -> int:
    return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1  # the driver is one of them


def _asked(context: Any) -> str:
    names = ("spark.executor.memory", "spark.executor.cores", "spark.cores.max", "spark.executor.instances")
    return ", ".join(f"{name}={context.getConf().get(name)}" for name in names if context.getConf().get(name)) or "Spark's defaults"


def _ask_executors(context: Any, tasks: int, modules: tuple[str, ...], rendezvous: Path) -> list[Found]:
    from py4j.protocol import Py4JError

    task = look_task(modules, str(rendezvous), tasks, _TOGETHER)
    try:
        answers = context.parallelize(range(tasks), tasks).mapPartitions(task).collect()
    except Py4JError as error:
        raise EngineError("executors cannot run Python tasks", *failure_lines(str(error)), hint=_PYTHON) from error
    return [Found(*json.loads(answer)) for answer in answers]


def _without_log(context: Any, tasks: int, log: Log) -> list[str]:
    """What keeps executors from the log, each thing once: an address that they do not reach, a secret that they do not have."""

    def look(rows: Any) -> Iterable[str]:
        list(rows)
        try:
            log.topics()
            return []
        except PenstockError as error:
            return [f"{socket.gethostname()}: {error}"]

    return sorted(set(context.parallelize(range(tasks), tasks).mapPartitions(look).collect()))


_PYTHON = (
    f"executors need Python {python_version()} with penstock's libraries where --conf spark.pyspark.python=PATH says; "
    "or take everything along: penstock pack --archive, then run --pack FILE"
)


def failure_lines(trace: str) -> list[str]:
    """The trace of a task that could not run, in a line that says where and why."""
    where = re.search(r"\(TID \d+\) \(([^)]+)\)", trace)
    program = re.search(r'Cannot run program "([^"]+)"[^\n]*', trace)
    version = re.search(r"\[PYTHON_VERSION_MISMATCH\] ([^\n]+)", trace)
    what = program[0] if program else version[1] if version else reason(trace)
    return [f"{where[1]}: {what}" if where else what]


def look_task(modules: tuple[str, ...], rendezvous: str, tasks: int, patience: float) -> Callable[[Any], Iterable[str]]:
    """Runs on executors that may have nothing but Python, so it is sent whole and imports what it needs itself."""

    def look(rows: Any) -> Iterable[str]:
        import importlib
        import json
        import os
        import socket
        import time
        import uuid

        list(rows)
        versions, missing, home = {}, {}, ""
        for name in modules:
            try:
                versions[name] = str(getattr(importlib.import_module(name), "__version__", ""))
            except Exception as error:
                missing[name] = f"{type(error).__name__}: {error}"
        try:
            with open(os.path.join(rendezvous, uuid.uuid4().hex), "x"):
                pass
            deadline = time.monotonic() + patience
            while len(os.listdir(rendezvous)) < tasks and time.monotonic() < deadline:
                time.sleep(0.02)
        except OSError as error:
            home = error.strerror or str(error)
        directory = os.path.basename(os.getcwd())
        return [json.dumps([f"{socket.gethostname()} executor {directory}", versions, missing, home])]

    return look


def problems(found: Iterable[Found], home: Path) -> list[str]:
    """One line for each thing that an executor lacks."""
    lines = []
    for answer in found:
        lines += [f"{answer.where}: {why}" for why in answer.missing.values()]
        if answer.home:
            lines.append(f"{answer.where}: the home {home} cannot be written: {answer.home}")
    return lines


def differences(found: Iterable[Found], here: Mapping[str, str]) -> list[str]:
    """Libraries that are of another version on an executor."""
    return [
        f"{answer.where} has {name} {version}, here it is {here[name]}"
        for answer in found
        for name, version in answer.versions.items()
        if version != here.get(name, version)
    ]


def versions_here(modules: Iterable[str]) -> dict[str, str]:
    return {name: str(getattr(import_module(name), "__version__", "")) for name in modules}


def _advice(found: Iterable[Found]) -> str:
    if not any(answer.missing or answer.home for answer in found):
        return "every executor reads the log itself: its address, its secrets and Kafka's client must be there, too"
    if any(answer.missing for answer in found):
        return "take the libraries along: penstock pack --archive, then run --pack FILE; or install them on the workers"
    return (
        "log, state and decisions must be on a file system that the driver and all executors see under the same path, "
        f"writable for user {os.getuid()} of this machine and for whoever runs the executors"
    )
