"""G28. Another user of the machine, who reaches every socket of a driver, is let in at none."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from penstock.engine.spark.scratch import scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from faults import strangers

STRANGER = "65534"  # nobody
TRY = Path(strangers.__file__)


def tried(kind: str, where: str) -> str:
    """What a stranger gets who speaks this protocol to this address; as another user where we may become one."""
    if os.geteuid() != 0:
        host, _, port = where.rpartition(":")
        found = strangers.answer((host, int(port)) if host else where, strangers.ATTACKS[kind]())
        return f"{'in' if strangers.got_in(kind, found) else 'out'} {found[:400]!r}"
    call = [sys.executable, "-c", TRY.read_text(), STRANGER, kind, where]
    return subprocess.run(call, capture_output=True, text=True, check=True, timeout=60, cwd="/").stdout


def processes(spark: "SparkSession") -> list[psutil.Process]:
    """The driver, its JVM and the Python workers."""
    spark.sparkContext.parallelize(range(2), 2).map(str).collect()
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
    return [psutil.Process(), jvm, *jvm.children(recursive=True)]


def listening(spark: "SparkSession") -> set[str]:
    found = set()
    for process in processes(spark):
        for c in process.net_connections("inet"):
            if c.status == psutil.CONN_LISTEN:
                found.add(f"{c.laddr.ip.removeprefix('::ffff:')}:{c.laddr.port}")
    return found


@pytest.fixture
def loaded(spark: "SparkSession", tmp_path: Path) -> "SparkSession":
    """A session that has something to take: a block, and a file."""
    shared = tmp_path / "shared.txt"
    shared.write_text("secret")
    spark.sparkContext.addFile(str(shared))
    spark.sparkContext.broadcast([1, 2, 3])
    return spark


def test_no_socket_of_a_driver_answers_a_stranger(loaded: "SparkSession") -> None:
    sockets = listening(loaded)
    assert len(sockets) >= 3  # Py4J, Spark's RPC, its block manager
    got = {(where, kind): tried(kind, where) for where in sockets for kind in strangers.ATTACKS}
    assert not {attack: text for attack, text in got.items() if text.startswith("in")}


def test_unix_sockets_lie_where_a_stranger_cannot_go(loaded: "SparkSession") -> None:
    assert stat.S_IMODE(scratch().stat().st_mode) == 0o700
    paths = {c.laddr for process in processes(loaded) for c in process.net_connections("unix") if str(c.laddr).startswith("/")}
    ours = {path for path in paths if path.endswith(".sock")}
    assert ours
    assert all(Path(path).parent == scratch() for path in ours)
    if os.geteuid() == 0:
        assert all("permission denied" in tried("py4j", path) for path in ours)


def test_the_secret_is_on_no_command_line_and_in_no_setting_that_is_printed(spark: "SparkSession") -> None:
    assert spark.sparkContext.getConf().get("spark.authenticate") == "true"
    jvm = spark.sparkContext._jvm
    held = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
    secret = bytes(held.getSecretKey(jvm.org.apache.hadoop.io.Text("sparkCookie"))).decode()
    assert len(secret) >= 64  # 256 bits, in hex
    for process in processes(spark):
        assert secret not in " ".join(process.cmdline())
    assert secret not in spark.sparkContext._jsc.sc().conf().toDebugString()
