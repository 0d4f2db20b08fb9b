"""A JVM that ends while it is being started is an error that says what it said last, and what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Stands for Java: it answers Spark's launcher, and as the driver's JVM it ends, at once or when it is first spoken to.
JAVA = """#!{python}
import os, socket, struct, sys
if "org.apache.spark.launcher.Main" in sys.argv:
    sys.stdout.write("\\0\\n" + "\\0".join([sys.argv[0], "-cp", "/nowhere", "org.apache.spark.deploy.SparkSubmit"]) + "\\0")
    sys.exit()
print("# There is insufficient memory for the Java Runtime Environment to continue.", file=sys.stderr, flush=True)
if {answers}:
    server = socket.create_server(("127.0.0.1", 0))
    told = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
    with open(told + ".new", "wb") as out:
        out.write(struct.pack(">ii", server.getsockname()[1], 4) + b"abcd")
    os.rename(told + ".new", told)
    server.accept()[0].recv(10)
sys.exit(134)
"""
STARTS = """
from penstock.cli.main import report
from penstock.engine.spark.session import start_context
try:
    start_context("dying", on_progress=print)
except Exception as error:
    report(error)
"""


@pytest.mark.parametrize("launch", ["own", "plain"])
@pytest.mark.parametrize("answers", [False, True], ids=["at once", "when spoken to"])
def test_a_jvm_that_ends_while_it_is_started_is_told_with_its_last_words(tmp_path: Path, answers: bool, launch: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA.format(python=sys.executable, answers=answers))
    java.chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.1"\n')
    env = {**os.environ, "JAVA_HOME": str(tmp_path), "PENSTOCK_LAUNCH": launch, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", STARTS], env=env, capture_output=True, text=True, check=True, timeout=120)
    assert "error: the JVM did not start\n" in done.stderr
    assert "There is insufficient memory for the Java" in done.stderr
    assert "hint: what it said is the cause; if it was killed" in done.stderr
    assert "unexpected error" not in done.stderr
    assert all(line.startswith("starting") for line in done.stdout.splitlines())
