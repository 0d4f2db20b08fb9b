"""What Spark is told for a flow: a pure function of app, master and what the user passes, which wins over ours.

Why each of our settings is there is said beside it.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.engine.spark.cluster import is_local, on_this_machine, protection
from penstock.engine.spark.scratch import written_by_others

# One thread per Python worker: Spark already runs as many workers as there are cores.
ONE_THREAD = dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_IO_THREADS"), "1")
# A path for a Unix socket has about a hundred bytes; Spark adds 43 to the directory.
LONGEST_SOCKET_DIRECTORY = 60
# What Spark itself hides where it prints its settings.
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)

_TRIES = 3  # of a task


def local_master() -> str:
    """Every core, and at least two tasks at a time, so that what is tested on a laptop is not sequential by accident."""
    return f"local[{max(2, _usable_cores())}]"


def settings(app: str, master: str, given: Mapping[str, str], buckets: int, directory: Path) -> dict[str, str]:
    """All Spark settings for a session; the given ones win."""
    ours = {
        "spark.app.name": app,
        "spark.master": _with_slots(master),
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",  # it listens without asking who is there
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.locality.wait": "0",  # a bucket's state can be read from anywhere
        "spark.sql.adaptive.enabled": "false",  # it merges shuffle partitions, and a partition is a bucket of state
        "spark.sql.shuffle.partitions": str(buckets),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",  # kernels see rows whole, not in slices of 10,000
        "spark.python.worker.reuse": "true",
        "spark.pyspark.python": _python(master, given),
        **{f"spark.executorEnv.{name}": value for name, value in ONE_THREAD.items()},
    }
    ours |= {"spark.default.parallelism": str(_local(master)[0])} if is_local(master) else {}
    if on_this_machine(master):
        ours |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if not is_local(master):
        ours["spark.speculation"] = "false"  # a second attempt is harmless, but an epoch that used both is thrown away
    ours |= protection(master, given)
    if len(str(directory)) <= LONGEST_SOCKET_DIRECTORY:
        # About 30 ms less per Python stage than TCP on loopback.
        ours |= {"spark.python.unix.domain.socket.enabled": "true"}
        ours |= {"spark.python.unix.domain.socket.dir": str(directory)} if is_local(master) else {}
    ours["spark.driver.extraJavaOptions"] = _java_options(master, given.get("spark.driver.extraJavaOptions", ""), directory)
    return ours | {name: value for name, value in given.items() if name != "spark.driver.extraJavaOptions"}


def for_command_line(wanted: Mapping[str, str]) -> dict[str, str]:
    """The settings that may stand on the JVM's command line, where every user of the machine can read them.

    Secrets reach Spark through the gateway instead, before its context starts."""
    return {name: value for name, value in wanted.items() if not _SECRET.search(name)}


def _with_slots(master: str) -> str:
    """On one machine: slots for resident tasks beside those that are asked for, so that large epochs keep theirs; and, as on a
    cluster, another try for a task whose worker was killed, where Spark would give up at its first failure."""
    if not is_local(master):
        return master
    cores, tries = _local(master)
    return f"local[{2 * cores},{tries}]"


def _local(master: str) -> tuple[int, int]:
    """Cores and tries in a master such as local, local[2], local[*,3]."""
    cores, _, tries = ("1" if master == "local" else master.removeprefix("local[").removesuffix("]")).partition(",")
    return _usable_cores() if cores == "*" else int(cores), int(tries or _TRIES)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resident_slots(context: Any, local: bool) -> int:
    """How many resident tasks there may be at once: on one machine as many as there are slots beside those of large epochs, else
    half of the slots, so that something is left for everybody."""
    try:  # the number that Spark itself goes by for barriers; it may be had from Java alone
        java = context._jsc.sc()
        slots = int(java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile()))
    except Exception:
        return 0
    return max(slots - int(context.defaultParallelism) if local else 0, slots // 2)


def _python(master: str, given: Mapping[str, str]) -> str:
    """Workers run this very interpreter; a cluster may be told another path for the same one."""
    elsewhere = None if is_local(master) else os.environ.get("PYSPARK_PYTHON")
    return given.get("spark.pyspark.python") or elsewhere or sys.executable


def _java_options(master: str, given: str, directory: Path) -> str:
    ours = [_quoted(f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}")]
    # A JVM that is killed leaves temporary files and native libraries: here they are swept, and out of reach of others.
    ours += [_quoted(f"-Djava.io.tmpdir={directory}"), "-XX:+PerfDisableSharedMem"]
    if is_local(master) and "TieredStopAtLevel" not in given:
        ours.append("-XX:TieredStopAtLevel=1")  # rows stay out of the JVM, so what counts is how soon it is warm
    if is_local(master) and "-XX:+Use" not in given:
        ours.append("-XX:+UseSerialGC")
    return " ".join([*ours, given]).strip()


def _quoted(option: str) -> str:
    return f'"{option}"' if " " in option else option


def environment_for(master: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """What the JVM, and through it the Python workers, must find in their environment from the start."""
    local = {"SPARK_LOCAL_IP": "127.0.0.1"} if on_this_machine(master) else {}
    # Python workers look for modules in the working directory first: not where anybody may put one.
    local |= {"PYTHONSAFEPATH": "1"} if written_by_others(Path.cwd()) else {}
    return {**ONE_THREAD, **local, "PYSPARK_PYTHON": wanted["spark.pyspark.python"], "PYSPARK_DRIVER_PYTHON": sys.executable}
