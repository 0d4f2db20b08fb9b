"""What stops a run before Spark is started for it."""

from pathlib import Path

import pytest

from penstock import Flow, Schema
from penstock.engine.run.options import RunOptions
from penstock.engine.run.runtime import Runtime
from penstock.engine.run.service import serve
from penstock.errors import BadInput
from penstock.log.file.log import FileLog
from penstock.log.port import TopicSpec
from penstock.storage.local import LocalStorage


class Silent:
    def say(self, text: str) -> None: ...

    def progress(self, tally: object, report: object) -> None: ...

    def wait(self, text: str) -> None: ...

    def close(self, tally: object) -> None: ...


def copying() -> Flow:
    flow = Flow("copy")
    flow.stream("orders", "id long").view("copy")
    return flow


@pytest.mark.parametrize("durability", ["memory", "os"])
def test_executors_elsewhere_are_not_sent_to_read_the_memory_of_this_machine(durability: str, tmp_path: Path) -> None:
    log = FileLog(LocalStorage(str(tmp_path / "log")))
    log.create(TopicSpec("orders", 1, Schema.of("id long"), durability=durability))  # type: ignore[arg-type]
    order = RunOptions("catch_up", home=tmp_path, master="spark://192.0.2.1:7077", conf={"spark.authenticate": "true"})
    refused = {"memory": "is kept in the memory of this machine", "os": "there is no secret"}  # the latter: it came further
    with pytest.raises(BadInput, match=refused[durability]):
        serve([copying()], order, Silent())
    log.delete("orders")


@pytest.mark.parametrize("mode", ["catch_up", "drain"])
def test_a_bounded_run_does_not_look_for_a_static_table_among_the_topics(mode: str, tmp_path: Path) -> None:
    FileLog(LocalStorage(str(tmp_path / "log"))).create(TopicSpec("orders", 1, Schema.of("id long, country string")))
    flow = Flow("shop")
    countries = flow.static([{"country": "DE", "vat": 0.19}], "country string, vat double", key="country")
    flow.stream("orders", "id long, country string").enrich(countries, on="country").view("taxed", key="id")
    order = RunOptions(mode, home=tmp_path, master="spark://192.0.2.1:7077", conf={"spark.authenticate": "true"})
    with pytest.raises(BadInput, match="there is no secret"):  # it came as far as Spark
        serve([flow], order, Silent())


@pytest.mark.parametrize("verb", ["run", "catch_up", "drain", "test"])
def test_a_word_that_a_verb_of_a_flow_does_not_know_is_refused_before_anything_starts(verb: str) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'maste'"):
        getattr(Flow("shop"), verb)(maste="local[2]")


@pytest.mark.parametrize(
    ("name", "value"),
    [("spark.penstock.resident", "flase"), ("spark.penstock.resident.port", "x"), ("spark.penstock.oneTaskRows", "-1")],
)
def test_a_setting_of_our_own_that_means_nothing_is_refused_at_once(name: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"{name} cannot be '{value}'"):
        Runtime(tmp_path, conf={name: value})
    Runtime(
        tmp_path,
        conf={"spark.penstock.resident": "false", "spark.penstock.resident.port": "7090", "spark.penstock.oneTaskRows": "0"},
    )


def test_where_small_epochs_run_is_said(tmp_path: Path) -> None:
    assert Runtime(tmp_path).small_epochs() == "in a Spark task that stays"
    assert "a Spark job for each" in Runtime(tmp_path, conf={"spark.penstock.resident": "false"}).small_epochs()
