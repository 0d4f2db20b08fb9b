"""Starts the driver's JVM ourselves, so that it can use a class-data archive; plain PySpark is the fall-back.

PySpark starts its JVM through a shell script. Here the same command, as Spark's own launcher composes it, is run directly with an
exact class path and an archive of loaded classes, which about halves the time to the first result. The JVM reads our end of its
standard input and ends when that closes: with this process, however it ends.
"""

import glob
import os
import re
import shlex
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from penstock.engine.spark.java import Java
from penstock.engine.spark.jvm import how_it_ended
from penstock.errors import EngineError

PATIENCE = 90.0  # seconds a JVM may take to answer, on a machine that is busy with other things
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
# Only MLlib's linear algebra uses it; having it makes the JVM warn on standard error and start more slowly.
_UNWANTED = {"--add-modules=jdk.incubator.vector"}


class Jvm:
    """A running driver JVM with PySpark's gateway in it."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, secret: str) -> None:
        self.process, self.port, self.secret = process, port, secret

    def connect(self) -> Any:
        """PySpark's gateway to this JVM."""
        from pyspark.java_gateway import launch_gateway

        with environment({"PYSPARK_GATEWAY_PORT": str(self.port), "PYSPARK_GATEWAY_SECRET": self.secret}):
            gateway = launch_gateway()
        gateway.proc = self.process
        return gateway


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the time of the `with`: secrets and thread limits are not for every later child."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def spark_home() -> Path:
    """Where the installed pyspark is, found without importing it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EngineError("pyspark is not installed", hint="pip install pyspark")
    return Path(spec.origin).parent


def why_plain() -> str | None:
    """Why PySpark's own launch must be used here; None if ours may be."""
    home = spark_home()
    if os.environ.get("PENSTOCK_LAUNCH") == "plain":
        return "PENSTOCK_LAUNCH=plain"
    if Path(os.environ.get("SPARK_HOME", home)).resolve() != home.resolve():
        return "SPARK_HOME names another Spark"
    if (Path(os.environ.get("SPARK_CONF_DIR", home / "conf")) / "spark-env.sh").exists():
        return "there is a spark-env.sh, which only Spark's script reads"
    return "this is not a POSIX system" if sys.platform == "win32" else None


def command(java: Java, conf: Mapping[str, str], options: Sequence[str] = ()) -> list[str]:
    """What Spark's launcher would run for this configuration, with the class path spelled out and our options in front."""
    home = spark_home()
    scala = re.search(r"spark-core_([\d.]+)-", " ".join(os.listdir(home / "jars")))
    env = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala[1] if scala else "2.13", "JAVA_HOME": _home(java)}
    settings = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    rest = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    ask = [str(java.path), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main"]
    done = subprocess.run([*ask, _SUBMIT, *settings, *rest], env=env, capture_output=True, check=False, timeout=PATIENCE)
    if done.returncode != 0 or b"\0" not in done.stdout:
        raise EngineError("Spark's launcher gave no command", *done.stderr.decode(errors="replace").splitlines()[-5:])
    parts = [part.decode() for part in done.stdout.partition(b"\0")[2].lstrip(b"\r\n").split(b"\0")[:-1]]
    at = parts.index("-cp")
    parts[at + 1] = os.pathsep.join(_class_path(parts[at + 1]))
    return [parts[0], *options, *(part for part in parts[1:] if part not in _UNWANTED)]


def _home(java: Java) -> str:
    return str(java.path.parent.parent)


def _class_path(given: str) -> list[str]:
    """Archives want files: `jars/*` becomes the jars, each once, in an order that does not change."""
    entries: list[str] = []
    for entry in given.split(os.pathsep):
        entries += sorted(glob.glob(entry + ".jar")) if entry.endswith("*") else [entry]
    return list(dict.fromkeys(entry for entry in entries if os.path.exists(entry)))


def start(call: Sequence[str], directory: Path, log: IO[bytes] | None) -> "subprocess.Popen[bytes]":
    """Starts the JVM; `connected` waits for it. Its own process group keeps the terminal's Ctrl-C from it."""
    variables = {
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(directory / "gateway"),
        "SPARK_CONNECT_MODE": "0",
        "SPARK_HOME": str(spark_home()),
    }
    env = {**os.environ, **variables}
    return subprocess.Popen(call, stdin=subprocess.PIPE, stdout=log, stderr=log, env=env, process_group=0)


def connected(process: "subprocess.Popen[bytes]", directory: Path) -> Jvm:
    """Waits until the JVM has said where it listens; EngineError if it ends first or takes too long."""
    gateway_file = directory / "gateway"
    deadline = time.monotonic() + PATIENCE
    while not gateway_file.exists():
        if process.poll() is not None:
            raise EngineError(f"the JVM {how_it_ended(process.returncode)} before it answered")
        if time.monotonic() > deadline:
            process.kill()
            raise EngineError(f"the JVM did not answer within {PATIENCE:.0f} seconds")
        time.sleep(0.005)
    content = gateway_file.read_bytes()
    gateway_file.unlink()
    port, length = struct.unpack(">ii", content[:8])
    return Jvm(process, port, content[8 : 8 + length].decode())
