"""`penstock cdc` against a real PostgreSQL, as a user calls it: what it leaves in the database, and what it says."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from contract.cdc_shop import PENSTOCK, Shop, own_server
from penstock.capture.definition import CaptureDefinition
from penstock.capture.postgres import kind as postgres_kind
from penstock.capture.postgres.stream.replication import Replication
from penstock.capture.registry import Captures
from penstock.log.open import open_log
from penstock.testing.servers.postgres import PostgresServer
from unit.cli.calling import Answer, calls_of
from waiting import until

pytestmark = pytest.mark.timeout(240)
CANARY = "c4n4ry-of-the-d3ep"


@pytest.fixture
def shop(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    made = Shop(postgres, tmp_path / "home")
    yield made
    made.remove()


@pytest.fixture
def locked_server(tmp_path: Path) -> Iterator[PostgresServer]:
    """One that wants a password of the user `keeper`."""
    for server in own_server(tmp_path):
        server.execute(f"create role keeper login superuser password '{CANARY}'")
        rules = server.place / "data" / "pg_hba.conf"
        rules.write_text(f"host all keeper 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        server.execute("select pg_reload_conf()")
        yield server


def test_a_capture_is_added_run_shown_and_removed_without_a_trace_in_the_database(shop: Shop) -> None:
    added = shop.add()
    assert added.code == 0
    assert f"create publication {shop.slot} for table {shop.name}.orders, {shop.name}.users with (" in added.out
    assert f"select pg_create_logical_replication_slot('{shop.slot}', 'pgoutput');" in added.out
    assert shop.left() == [f"publication {shop.slot}", f"slot {shop.slot}"]
    ran = shop.catch_up()
    assert ran.code == 0, ran.err
    assert f"{shop.name}: table {shop.name}.users is copied\n" in ran.err
    assert f"{shop.name}: caught up · 100 changes of 2 tables in " in ran.err
    shop.server.execute(f"insert into {shop.name}.orders values (1, 9.5); delete from {shop.name}.users where id = 1")
    assert shop.catch_up().code == 0
    assert (shop.rows("users"), shop.rows("orders")) == (102, 1)
    answer = shop.status()
    assert answer.code == 0
    (row,) = answer.rows
    assert (row["state"], row["engine"], row["copies_unfinished"], row["trouble"]) == ("stopped", "postgres", 0, None)
    assert row["kept_bytes"] is not None
    assert row["last_commit"] is not None
    assert {each["table"]: (each["rows"], each["copied"]) for each in row["topics"]} == {
        f"{shop.name}.users": (102, True),
        f"{shop.name}.orders": (1, True),
    }
    removed = shop.call("remove", shop.name, "--topics", "--yes")
    assert (removed.code, shop.left()) == (0, [])
    assert f"replication slot {shop.slot} is dropped\npublication {shop.slot} is dropped\n" in removed.err
    assert open_log().topics() == []


def test_a_password_is_nowhere_but_where_it_was_given(
    locked_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, secret = tmp_path / "home", tmp_path / "secret"
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    url = locked_server.url.replace("postgres@", "keeper@")
    locked_server.execute("create table users (id int primary key); insert into users values (1)")
    call, told = calls_of("--verbose", "cdc"), list[str]()

    def said(*words: str) -> Answer:
        answer = call(*words)
        told.extend([answer.out, answer.err])
        return answer

    assert said("check", url, "--tables", "users").code == 4, "without a password"
    assert said("add", "shop", url, "--tables", "users").code == 2
    secret.write_text(f"{CANARY}\n")
    refused = said("add", "shop", url, "--tables", "users", "--password-file", str(secret))
    assert (refused.code, "others can read" in refused.err) == (2, True)
    secret.chmod(0o600)
    assert said("check", url, "--tables", "users", "--password-file", str(secret)).code == 0
    assert said("add", "shop", url, "--tables", "users", "--password-file", str(secret)).code == 0
    assert said("run", "shop", "--catch-up").code == 0
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    assert said("add", "other", url, "--tables", "users", "--password-env", "SHOP_PASSWORD").code == 0
    monkeypatch.setenv("SHOP_PASSWORD", "wrong " + CANARY)
    wrong = said("run", "other", "--catch-up")
    assert (wrong.code, "password authentication failed" in wrong.err) == (2, True)
    assert said("status").code == 0
    assert said("remove", "other", "--yes").code == 1
    monkeypatch.delenv("SHOP_PASSWORD")
    assert said("run", "other").code == 3
    running = subprocess.Popen([*PENSTOCK, "cdc", "run", "shop"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert until(lambda: said("status", "shop").rows[0]["state"] == "running")
        family = [psutil.Process(running.pid), *psutil.Process(running.pid).children(recursive=True)]
        told.extend(" ".join(process.cmdline()) for process in family)
        told.extend(" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    finally:
        running.send_signal(signal.SIGINT)
        told.extend(running.communicate(timeout=60))
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    assert said("remove", "other", "--yes").code == said("remove", "shop", "--yes").code == 0
    told.extend(path.read_bytes().decode("latin-1") for path in home.rglob("*") if path.is_file())
    assert [text for text in told if CANARY in text] == []


def test_a_password_may_lie_where_the_client_library_looks(
    locked_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = locked_server.url.replace("postgres@", "keeper@")
    file = tmp_path / "pgpass"
    file.write_text(f"*:*:*:keeper:{CANARY}\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    assert calls_of("cdc")("check", url).code == 0


def test_a_second_run_is_refused_and_the_first_ends_in_order_at_ctrl_c(shop: Shop) -> None:
    shop.add()
    with shop.started() as running:
        assert until(lambda: shop.rows("users") == 100)
        second = shop.catch_up()
        assert (second.code, "is running already" in second.err) == (1, True)
        refused = shop.call("remove", shop.name, "--yes")
        assert (refused.code, "is running already" in refused.err) == (1, True)
        assert shop.status().rows[0]["state"] == "running"
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (0, "")
    assert err.splitlines()[0] == f"{shop.name}: following 2 tables"
    assert err.splitlines()[-1].startswith(f"{shop.name}: stopped · 100 changes of 2 tables in ")
    assert "\x1b" not in err, "a pipe is no terminal"
    assert shop.catch_up().code == 0


def test_sigterm_ends_a_run_in_order(shop: Shop) -> None:
    shop.add()
    with shop.started("--quiet") as running:
        assert until(lambda: shop.rows("users") == 100)
        running.terminate()
        _, err = running.communicate(timeout=60)
    assert (running.returncode, len(err.splitlines())) == (0, 1)


def test_a_run_that_is_killed_goes_on_at_the_next_start(shop: Shop) -> None:
    shop.add()
    for i in range(3):
        with shop.started() as running:
            assert until(lambda i=i: shop.rows("users") == 100 + i)  # type: ignore[misc]
            running.kill()
        shop.server.execute(f"insert into {shop.name}.users values ({1000 + i}, 'more')")
    assert shop.catch_up().code == 0
    assert shop.rows("users") == 103


def test_tables_added_while_it_runs_are_taken_up(shop: Shop) -> None:
    shop.add(tables="users")
    with shop.started() as running:
        assert until(lambda: shop.rows("users") == 100)
        added = shop.call("add", shop.name, "--tables", f"{shop.name}.orders")
        assert (added.code, added.out) == (0, f"alter publication {shop.slot} add table {shop.name}.orders;\n")
        assert "it is running, and takes them up by itself" in added.err
        shop.server.execute(f"insert into {shop.name}.orders values (1, 1)")
        assert until(lambda: shop.rows("orders") == 1)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)


def test_a_capture_of_the_same_name_in_another_home_is_left_alone(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add()
    with monkeypatch.context() as other:
        other.setenv("PENSTOCK_HOME", str(tmp_path / "other"))
        refused = shop.add()
        assert (refused.code, f"there is a replication slot {shop.slot} already" in refused.err) == (2, True)
        assert Captures().names() == []
    assert shop.catch_up().code == 0


def test_what_a_killed_preparation_has_left_is_found_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        """Nothing is cleaned up behind it."""

    def killed(*_: object) -> None:
        raise Killed

    def set_up(kind: postgres_kind.PostgresKind, definition: CaptureDefinition) -> CaptureDefinition:
        whole(kind, definition)
        raise Killed

    whole = postgres_kind.PostgresKind.set_up
    with monkeypatch.context() as patched:
        patched.setattr(postgres_kind.PostgresKind, "set_up", set_up)
        patched.setattr(postgres_kind.PostgresKind, "tear_down", killed)
        with pytest.raises(Killed):
            shop.add()
    assert shop.left() == [f"publication {shop.slot}", f"slot {shop.slot}"]
    assert shop.call("run", shop.name).code == 2
    assert shop.add().code == 0
    assert shop.catch_up().code == 0
    assert shop.call("remove", shop.name, "--yes").code == 0
    assert shop.left() == []


def test_a_slot_that_somebody_reads_is_not_dropped_and_the_reader_is_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_kind, "PATIENCE", 0.0)
    shop.add()
    with Replication(shop.server.url, shop.slot, [shop.slot]):
        refused = shop.call("remove", shop.name, "--yes")
        assert refused.code == 1
        assert "cannot be dropped: somebody reads it" in refused.err
        assert f"postgres, penstock {shop.slot}, from 127.0.0.1" in refused.err
        assert Captures().names() == [shop.name]
    assert shop.left() == [f"publication {shop.slot}", f"slot {shop.slot}"]


def test_a_slot_that_is_gone_is_unhealthy_and_the_run_says_what_to_do(shop: Shop) -> None:
    shop.add()
    assert shop.catch_up().code == 0
    shop.server.execute("select pg_drop_replication_slot(%s)", shop.slot)
    answer = shop.status()
    assert (answer.code, f"there is no replication slot {shop.slot}" in answer.err) == (4, True)
    ran = shop.catch_up()
    assert (ran.code, "--resnapshot" in ran.err) == (1, True)
    assert f"{shop.name}: failed · " in ran.err


def test_a_capture_is_not_forgotten_while_its_database_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    for server in own_server(tmp_path):
        shop = Shop(server, tmp_path / "home")
        shop.add()
        server.stop()
        refused = shop.call("remove", shop.name, "--yes")
        assert refused.code == 1
        assert f"    select pg_drop_replication_slot('{shop.slot}');\n" in refused.err
        assert f"    drop publication {shop.slot};\n" in refused.err
        assert (shop.status().code, Captures().names()) == (0, [shop.name])
        forced = shop.call("remove", shop.name, "--yes", "--force")
        assert (forced.code, Captures().names()) == (0, [])
        assert f"    select pg_drop_replication_slot('{shop.slot}');\n" in forced.err
        server.start()
        assert len(shop.left()) == 2, "as it said"


def test_a_database_that_comes_back_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    for server in own_server(tmp_path):
        shop = Shop(server, tmp_path / "home")
        shop.add()
        with shop.started() as running:
            assert until(lambda shop=shop: shop.rows("users") == 100)
            server.restart_at_once()
            server.execute(f"insert into {shop.name}.users values (1000, 'more')")
            assert until(lambda shop=shop: shop.rows("users") == 101)
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=60)
        assert f"{shop.name} waits, and tries again: " in err
        assert f"{shop.name} goes on after " in err


def test_tables_for_people_fit_eighty_columns(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shop.add()
    shop.catch_up()
    answer = shop.call("status", shop.name, "--output", "table")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    assert f"{shop.name}.{shop.name}.users" in answer.out
