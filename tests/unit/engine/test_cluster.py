"""What Spark is told where the work leaves this machine, and what is asked before."""

import socket
from pathlib import Path

import pytest

from penstock.engine.spark.cluster import answering, on_this_machine, protection, with_secret
from penstock.engine.spark.settings import environment_for, for_command_line, settings
from penstock.errors import BadInput, EngineError

SAFE = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
FAR = "spark://host:7077"
HERE = "spark://127.0.0.1:7077"


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:6443"])
def test_a_cluster_that_makes_a_secret_for_each_run_is_told_to_authenticate_and_encrypt(master: str) -> None:
    assert settings("app", master, {}, 2, Path("/tmp/x")).items() >= SAFE.items()


def test_a_standalone_cluster_is_talked_to_with_its_secret_authenticated_and_encrypted() -> None:
    made = settings("app", FAR, {"spark.authenticate.secret": "canary"}, 2, Path("/tmp/x"))
    assert made.items() >= SAFE.items()
    assert made["spark.authenticate.secret"] == "canary"
    assert "canary" not in str(for_command_line(made))
    assert "canary" not in str(environment_for(FAR, made))


def test_a_cluster_elsewhere_without_a_secret_is_refused_unless_the_user_wants_it_so() -> None:
    with pytest.raises(BadInput, match="there is no secret to talk to it") as refused:
        protection(FAR, {})
    assert "spark.authenticate.secret.file=FILE" in str(refused.value)
    assert protection(FAR, {"spark.authenticate": "false"}) == {}


def test_a_cluster_that_only_this_machine_reaches_may_be_without_a_secret() -> None:
    assert protection(HERE, {}) == {}
    assert protection(HERE, {"spark.authenticate.secret": "canary"}) == SAFE
    with pytest.raises(BadInput):
        protection(HERE, {"spark.authenticate": "true"})


def test_on_one_machine_too_whoever_connects_must_know_the_secret_and_the_driver_listens_to_this_machine_alone() -> None:
    assert protection("local[2]", {}) == protection("local", {}) == SAFE
    assert protection("local[2]", {"spark.authenticate": "false"}) == {}
    for master in ("local[2]", HERE):
        assert settings("app", master, {}, 2, Path("/tmp/x"))["spark.driver.bindAddress"] == "127.0.0.1"
        assert environment_for(master, settings("app", master, {}, 2, Path("/tmp/x")))["SPARK_LOCAL_IP"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local", True),
        ("local[4]", True),
        ("spark://localhost:1", True),
        ("spark://127.0.0.9:1,[::1]:2", True),
        ("spark://127.0.0.1:1,host:2", False),
        ("spark://10.0.0.1:7077", False),
        ("yarn", False),
    ],
)
def test_whether_a_master_is_on_this_machine(master: str, here: bool) -> None:
    assert on_this_machine(master) == here


@pytest.mark.parametrize("master", ["spark://", "spark://host", "spark://host:port", "spark://:7077"])
def test_an_address_that_is_none_is_refused(master: str) -> None:
    with pytest.raises(BadInput):
        on_this_machine(master)


def test_a_secret_is_read_from_its_file_and_the_files_name_goes(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary\n")
    made = with_secret({"spark.authenticate.secret.file": str(tmp_path / "secret"), "spark.x": "y"})
    assert made == {"spark.authenticate.secret": "canary", "spark.x": "y"}


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_a_file_without_a_secret_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "secret").write_text(content)
    with pytest.raises(BadInput):
        with_secret({"spark.authenticate.secret.file": str(tmp_path / "secret")})


def test_a_master_that_does_not_answer_is_told_before_a_jvm_is_started() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        with pytest.raises(EngineError, match=f"no Spark master answers at spark://127.0.0.1:{port}"):
            answering(f"spark://127.0.0.1:{port}")
        listening.listen()
        answering(f"spark://127.0.0.1:1,127.0.0.1:{port}")


def test_a_second_attempt_of_a_slow_task_is_not_made() -> None:
    assert settings("app", "yarn", {}, 2, Path("/tmp/x"))["spark.speculation"] == "false"
