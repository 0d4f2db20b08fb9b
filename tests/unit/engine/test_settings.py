"""What Spark is told, without a Spark."""

import sys
from pathlib import Path

import pytest

from penstock.engine.spark.settings import environment_for, for_command_line, local_master, resident_slots, settings

SECRET = {"spark.authenticate.secret": "canary"}
SHORT, LONG = Path("/tmp/penstock-x"), Path("/tmp") / ("x" * 80)


def test_any_given_setting_wins_over_ours() -> None:
    given = {
        "spark.sql.adaptive.enabled": "true",
        "spark.driver.memory": "9g",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.x": "y",
    }
    assert settings("app", "local[2]", given, 2, SHORT).items() >= given.items()


def test_given_java_options_come_after_ours_so_that_they_win() -> None:
    made = settings("app", "local[2]", {"spark.driver.extraJavaOptions": "-Dmine=1"}, 2, SHORT)["spark.driver.extraJavaOptions"]
    assert made.endswith(" -Dmine=1")
    assert "-XX:+UseSerialGC" in made
    assert "log4j2.configurationFile" in made


def test_two_collectors_are_never_asked_for() -> None:
    made = settings("app", "local[2]", {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}, 2, SHORT)["spark.driver.extraJavaOptions"]
    assert "UseSerialGC" not in made


def test_a_local_master_is_bound_to_this_machine_and_a_cluster_is_not() -> None:
    assert settings("app", "local[4]", {}, 2, SHORT)["spark.driver.bindAddress"] == "127.0.0.1"
    cluster = settings("app", "spark://host:7077", SECRET, 2, SHORT)
    assert "spark.driver.bindAddress" not in cluster
    assert "UseSerialGC" not in cluster["spark.driver.extraJavaOptions"]


def test_workers_run_this_interpreter_unless_a_cluster_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert settings("app", "local[2]", {}, 2, SHORT)["spark.pyspark.python"] == sys.executable
    cluster = settings("app", "spark://host:7077", SECRET, 2, SHORT)
    assert cluster["spark.pyspark.python"] == "/opt/python"
    assert environment_for("spark://host:7077", cluster)["PYSPARK_PYTHON"] == "/opt/python"


def test_a_directory_too_long_for_a_unix_socket_means_tcp() -> None:
    assert "spark.python.unix.domain.socket.enabled" in settings("app", "local[2]", {}, 2, SHORT)
    assert "spark.python.unix.domain.socket.enabled" not in settings("app", "local[2]", {}, 2, LONG)


def test_a_shuffle_has_as_many_parts_as_there_are_buckets() -> None:
    assert settings("app", "local[2]", {}, 7, SHORT)["spark.sql.shuffle.partitions"] == "7"


def test_the_default_master_runs_at_least_two_tasks() -> None:
    assert int(local_master().removeprefix("local[").removesuffix("]")) >= 2


def test_secrets_do_not_stand_on_a_command_line() -> None:
    given = {
        "spark.authenticate.secret": "canary",
        "spark.hadoop.fs.s3a.access.key": "canary",
        "spark.ssl.keyPassword": "canary",
        "spark.x": "y",
    }
    shown = for_command_line(settings("app", "local[2]", given, 2, SHORT))
    assert "canary" not in str(shown)
    assert shown["spark.x"] == "y"


CORES = int(local_master().removeprefix("local[").removesuffix("]"))


@pytest.mark.parametrize(
    ("given", "used", "parallelism"),
    [("local", "local[2,3]", 1), ("local[2]", "local[4,3]", 2), ("local[2,9]", "local[4,9]", 2)],
)
def test_on_one_machine_a_task_is_tried_again_and_large_epochs_keep_their_slots(given: str, used: str, parallelism: int) -> None:
    made = settings("app", given, {}, 2, SHORT)
    assert (made["spark.master"], made["spark.default.parallelism"]) == (used, str(parallelism))
    elsewhere = settings("app", "spark://host:7077", SECRET, 2, SHORT)
    assert elsewhere["spark.master"] == "spark://host:7077"
    assert "spark.default.parallelism" not in elsewhere


class SlotsOf:
    """As much of a SparkContext as tells how many tasks run at once."""

    def __init__(self, slots: int, parallelism: int) -> None:
        self.slots, self.defaultParallelism = slots, parallelism
        self._jsc = self

    def sc(self) -> "SlotsOf":
        return self

    def resourceProfileManager(self) -> "SlotsOf":
        return self

    def defaultResourceProfile(self) -> str:
        return "default"

    def maxNumConcurrentTasks(self, profile: str) -> int:
        return self.slots


@pytest.mark.parametrize(
    ("slots", "parallelism", "local", "most"),
    [(4, 2, True, 2), (2, 1, True, 1), (2, 2, True, 1), (1, 1, True, 0), (16, 16, False, 8), (2, 2, False, 1), (1, 2, False, 0)],
)
def test_resident_tasks_leave_slots_for_everybody_else(slots: int, parallelism: int, local: bool, most: int) -> None:
    assert resident_slots(SlotsOf(slots, parallelism), local) == most


def test_where_spark_does_not_tell_its_slots_there_are_no_resident_tasks() -> None:
    assert resident_slots(object(), True) == 0


def test_all_cores_may_be_asked_for() -> None:
    made = settings("app", "local[*]", {}, 2, SHORT)
    cores = int(made["spark.default.parallelism"])
    assert 1 <= cores <= CORES
    assert made["spark.master"] == f"local[{2 * cores},3]"


def test_workers_import_nothing_from_a_working_directory_that_others_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o700)
    assert "PYTHONSAFEPATH" not in environment_for("local[2]", {"spark.pyspark.python": "python"})
    tmp_path.chmod(0o1777)
    assert environment_for("local[2]", {"spark.pyspark.python": "python"})["PYTHONSAFEPATH"] == "1"


def test_the_temporary_files_of_java_go_into_the_directory_of_the_process_also_if_its_name_has_a_space() -> None:
    options = "spark.driver.extraJavaOptions"
    assert f"-Djava.io.tmpdir={SHORT} " in settings("app", "local[2]", {}, 2, SHORT)[options]
    assert '"-Djava.io.tmpdir=/tmp/a b"' in settings("app", "local[2]", {}, 2, Path("/tmp/a b"))[options]
