"""What the operating system must allow before Spark starts."""

import subprocess
import sys

PROGRAM = """
import resource, sys
soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from penstock.engine.spark.limits import check_open_files
check_open_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def allowed(soft: int, hard: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", PROGRAM, str(soft), str(hard)], capture_output=True, text=True, check=False)


def test_a_shell_that_allows_few_open_files_is_told_before_spark_starts() -> None:
    assert "this process may open 64 files, and Spark needs 256 at least" in allowed(64, 64).stderr


def test_a_low_limit_is_raised_as_far_as_it_goes() -> None:
    assert allowed(64, 1000).stdout == "1000\n"
