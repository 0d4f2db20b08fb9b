"""What executors say of themselves, and what is made of it; without a Spark."""

import json
from pathlib import Path

import pytest

from penstock.engine.spark.executors import Found, differences, failure_lines, look_task, problems, settings_of
from penstock.engine.spark.pack import CODE, ENVIRONMENT, Manifest, own_digest, python_version
from penstock.engine.spark.packing import Entry, write_tar
from penstock.errors import EngineError


def asked(modules: tuple[str, ...], meeting: Path, tasks: int = 1) -> Found:
    (answer,) = look_task(modules, str(meeting), tasks, 0.1)([0])
    return Found(*json.loads(answer))


def test_an_executor_says_what_it_has_and_what_it_lacks(tmp_path: Path) -> None:
    found = asked(("penstock", "pyarrow", "no_such_library"), tmp_path)
    assert set(found.versions) == {"penstock", "pyarrow"}
    assert found.missing == {"no_such_library": "ModuleNotFoundError: No module named 'no_such_library'"}
    assert found.home == ""


def test_a_home_that_an_executor_does_not_see_is_told(tmp_path: Path) -> None:
    found = asked((), tmp_path / "elsewhere")
    assert problems([found], tmp_path) == [f"{found.where}: the home {tmp_path} cannot be written: No such file or directory"]


def test_each_thing_that_is_missing_has_a_line_that_says_where() -> None:
    found = Found("w1 executor 0", {}, {"polars": "ModuleNotFoundError: No module named 'polars'"}, "")
    fine = Found("w2 executor 1", {"polars": "2.1.0"}, {}, "")
    assert problems([found, fine], Path("/home")) == ["w1 executor 0: ModuleNotFoundError: No module named 'polars'"]


def test_another_version_on_an_executor_is_told_and_the_same_is_not() -> None:
    found = [Found("w1 executor 0", {"polars": "2.0.0", "numpy": "2.4.6"}, {}, "")]
    assert differences(found, {"polars": "2.1.0", "numpy": "2.4.6"}) == ["w1 executor 0 has polars 2.0.0, here it is 2.1.0"]
    assert differences(found, {"penstock": "0.1.0"}) == []


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        (
            'x (TID 3) (10.0.0.1 executor 0): java.io.IOException: Cannot run program "/no/python": error=2, No such file\n\tat y',
            '10.0.0.1 executor 0: Cannot run program "/no/python": error=2, No such file',
        ),
        (
            "x (TID 3) (w1 executor 0): [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9\n at",
            "w1 executor 0: Python in worker has different version: 3.9",
        ),
        ("py4j: x\nModuleNotFoundError: No module named 'numpy'\n\tat z", "ModuleNotFoundError: No module named 'numpy'"),
    ],
)
def test_a_trace_is_told_in_a_line(trace: str, line: str) -> None:
    assert failure_lines(trace) == [line]


def environment(path: Path, **differs: str) -> Path:
    about = {"kind": ENVIRONMENT, "penstock": "0.1.0", "digest": own_digest(), "python": python_version(), "platform": "any"}
    write_tar(path, [Entry("penstock-pack.json", Manifest(**about | differs).encode())], lambda done, total: None)  # type: ignore[arg-type]
    return path


def test_an_environment_is_unpacked_beside_the_executor_and_its_python_is_used(tmp_path: Path) -> None:
    path = environment(tmp_path / "env.tar.gz")
    made = settings_of(str(path))
    assert made["spark.archives"] == f"{path}#penstock-env"
    assert made["spark.pyspark.python"] == "./penstock-env/bin/python"
    assert settings_of(str(environment(tmp_path / "b.tar.gz", kind=CODE))) == {}
    assert settings_of(None) == {}


@pytest.mark.parametrize("differs", [{"python": "3.1"}, {"penstock": "0.0.1"}, {"digest": "0" * 64}])
def test_a_pack_of_another_installation_is_refused(differs: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="does not belong to this installation"):
        settings_of(str(environment(tmp_path / "env.tar.gz", **differs)))
