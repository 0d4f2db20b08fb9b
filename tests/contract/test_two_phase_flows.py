"""Flows that write to two real databases at once: through kills of a server, and what `penstock doctor` does with what is left."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.engine_shop import SparkFree
from penstock import Flow, Producer, Schema, TopicSpec
from penstock.cli.main import run
from penstock.engine.diagnose.inspect import decisions_of
from penstock.engine.flows.prepared import left_prepared, life_of
from penstock.engine.replay.instep import SinkCheck, places_of, sink_named
from penstock.engine.run import loop, waiting
from penstock.engine.run.driver import Driver
from penstock.errors import Mismatch
from penstock.sinks.port import SinkSpec
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.sink import EPOCHS, Crash, CrashAt, delivery, staged_epochs
from penstock.testing.servers.postgres import PostgresServer
from two_phase_pair import Pair, pair_of

ROWS = "id long, text string, at timestamp"


def driver_of(home: Path, pair: Pair, name: str = "shop") -> Driver:
    runtime = SparkFree(home)
    if "rows" not in runtime.log.topics():
        runtime.log.create(TopicSpec("rows", 1, Schema.of(ROWS), "at"))
    flow = Flow(name)
    flow.stream("rows", ROWS, time="at").select("id", "text").view("seen").sink(pair.definition(), name="pair")
    return runtime.driver(runtime.plan(flow))


def send(home: Path, *ids: int) -> None:
    with Producer(SparkFree(home).log.topic("rows")) as producer:
        for n in ids:
            producer.send({"id": n, "text": str(n), "at": "2024-01-15T10:00:00Z"})


def drained(driver: Driver) -> None:
    loop.drain(driver, threading.Event(), lambda report: None)
    driver.deliverer.caught_up(60)
    driver.stop()


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[PostgresServer]]:
    monkeypatch.setattr(waiting, "FIRST", 0.05)
    monkeypatch.setattr(waiting, "MOST", 0.2)
    with PostgresServer(tmp_path / "one") as one, PostgresServer(tmp_path / "other") as other:
        yield [one, other]


def test_a_flow_goes_on_while_one_of_two_databases_is_away_and_both_get_the_rest_together(
    tmp_path: Path, servers: list[PostgresServer]
) -> None:
    home = tmp_path / "home"
    with pair_of(servers) as pair:
        driver = driver_of(home, pair)
        driver.start()
        for n, server in enumerate([*servers, *servers]):
            server.kill()
            send(home, 2 * n, 2 * n + 1)
            assert driver.epoch()
            server.start()
        drained(driver)
        assert sorted(pair.both()) == [(n, str(n)) for n in range(8)]
        assert [path for path in (home / "flows").rglob("*") if path.is_file() and b"postgresql://" in path.read_bytes()], (
            "recorded"
        )


def test_each_database_is_compared_with_the_log_and_put_right(tmp_path: Path, servers: list[PostgresServer]) -> None:
    home = tmp_path / "home"
    with pair_of(servers) as pair:
        driver = driver_of(home, pair)
        driver.start()
        send(home, *range(5))
        drained(driver)
        output = sink_named(driver.plan, "two_phase.pair")
        checks = [SinkCheck(SparkFree(home), driver.plan, output, place) for place in places_of(output)]
        assert [check.reconcile().compared.rows for check in checks] == [5, 5]
        servers[1].execute(f"delete from {pair.table} where id = 3")
        found = [check.reconcile(repair=True) for check in checks]
        assert [(each.compared.missing, each.written) for each in found] == [(0, 0), (1, 1)]
        assert sorted(pair.both()) == [(n, str(n)) for n in range(5)]


# what is left prepared


@pytest.fixture
def pair(postgres: PostgresServer) -> Iterator[Pair]:
    with pair_of([postgres]) as made:
        yield made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def leave(home: Path, pair: Pair, point: str, nth: int, name: str = "shop", life: str | None = None) -> None:
    """A driver of the flow ends in the middle of its epoch 0."""
    driver = driver_of(home, pair, name)
    driver.start()
    driver.stop()
    spec = SinkSpec(name, "pair", Schema.of("id long, text string"), ())
    sink = pair.sink(spec, staged_epochs(EPOCHS), CrashAt(point, nth))
    life = life or life_of(decisions_of(home, name))
    sink.open(life, 1)
    with pytest.raises(Crash):
        sink.deliver(delivery(0, incarnation=life))
    sink.close()


@pytest.mark.parametrize(("nth", "becomes"), [(1, "rolled back"), (2, "committed")])
def test_doctor_tells_of_a_prepared_transaction_and_finishes_it_when_asked(
    nth: int, becomes: str, home: Path, pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(home, pair, "two_phase.prepared", nth)
    run(["doctor"])
    told = capsys.readouterr().out
    assert f"! flow shop, sink two_phase.pair: epoch 0 stands prepared in table {pair.table} of PostgreSQL" in told
    assert "the next start of the flow finishes it; now: penstock doctor --resolve" in told
    assert any(pair.prepared())
    run(["doctor", "--resolve"])
    assert f"✓ flow shop, sink two_phase.pair: epoch 0 in table {pair.table} of PostgreSQL" in (said := capsys.readouterr().out)
    assert f"was {becomes}" in said
    assert pair.prepared() == [[], []]
    assert sorted(pair.both()) == (EPOCHS[0] if becomes == "committed" else [])
    run(["doctor"])
    assert "prepared" not in capsys.readouterr().out


def test_what_a_running_flow_has_prepared_is_left_alone(home: Path, pair: Pair) -> None:
    leave(home, pair, "two_phase.prepared", 2)
    left = pair.prepared()
    with decisions_of(home, "shop").storage.lock("lock", wait=False):
        findings = list(left_prepared(home, resolve=True))
    assert {finding.level for finding in findings} == {"ok"}
    assert all("the flow is running, and finishes it" in finding.what for finding in findings)
    assert pair.prepared() == left


def test_what_an_earlier_life_left_stops_the_flow_until_doctor_has_finished_it(home: Path, pair: Pair) -> None:
    leave(home, pair, "two_phase.prepared", 2)
    LocalStorage(str(home / "flows" / "shop")).remove("incarnation")  # as a reset does, with all the rest
    driver = driver_of(home, pair)
    with pytest.raises(Mismatch, match="a prepared transaction of sink pair belongs to another incarnation"):
        driver.start()
    findings = list(left_prepared(home))
    assert {finding.level for finding in findings} == {"bad"}
    assert all("from an earlier life of the flow: no start finishes it" in finding.what for finding in findings)
    assert {finding.level for finding in left_prepared(home, resolve=True)} == {"ok"}
    assert pair.prepared() == [[], []]
    assert sorted(pair.both()) == EPOCHS[0]


def test_what_flows_of_other_homes_left_is_told_and_not_touched(home: Path, tmp_path: Path, pair: Pair) -> None:
    known = driver_of(home, pair, "known")
    known.start()
    known.stop()
    other = Pair(pair.urls, pair.table.replace("results", "others"), pair.patience)
    leave(tmp_path / "elsewhere", other, "two_phase.prepared", 1, "stranger")
    [finding] = left_prepared(home, resolve=True)
    assert finding.level == "warn"
    assert "flow stranger, sink two_phase.pair: no flow of this home has left epoch 0 prepared in database postgres" in finding.what
    assert f"ROLLBACK PREPARED '{other.prepared()[0][0]}'" in str(finding.hint)


def test_databases_that_are_away_are_told(home: Path, tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "gone") as server, pair_of([server]) as pair:
        driver = driver_of(home, pair)
        driver.start()
        driver.stop()
    [finding] = left_prepared(home)
    assert (finding.level, "what is prepared there cannot be told" in finding.what) == ("warn", True)


def test_a_reset_finishes_what_was_left_prepared_before_it_forgets_where_that_is(
    home: Path, pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(home, pair, "two_phase.prepared", 2)
    assert run(["flow", "reset", "shop", "--yes"]) == 0
    told = capsys.readouterr().err
    assert f"flow shop, sink two_phase.pair: epoch 0 in table {pair.table} of PostgreSQL" in told
    assert (
        f"DELETE FROM {pair.table}; DELETE FROM {pair.table.partition('.')[0]}.penstock_marker WHERE flow = 'shop' AND sink" in told
    )
    assert pair.prepared() == [[], []]
    with pytest.raises(Mismatch, match="belongs to another incarnation") as refused:
        driver_of(home, pair).start()
    for url, way in zip(pair.urls, str(refused.value.hint).split("in PostgreSQL ")[1:], strict=True):
        Pair((url, url), pair.table).query(way.partition(": ")[2].partition(". Or")[0].rstrip("; "))
    assert pair.both() == []
    driver = driver_of(home, pair)
    driver.start()
    driver.stop()
