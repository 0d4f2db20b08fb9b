"""Servers that were restored, replaced or promoted, and slots that are gone: each a stop that says what happened and what to do."""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from capture_postgres import PATIENCE, Followed
from penstock.capture.postgres.connecting import connect
from penstock.capture.postgres.lsn import lsn_text
from penstock.capture.postgres.resuming import check_server
from penstock.capture.postgres.slots import create_slot, describe_slot, drop_slot
from penstock.capture.postgres.stream.replication import System
from penstock.errors import CaptureError, Disconnected, NotFollowable, SlotInUse, SlotLost
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.waiting import until

T = "create table t (id int primary key, v text); insert into t values (1, 'x');"


@pytest.fixture
def server(tmp_path: Path, postgres: PostgresServer) -> Iterator[PostgresServer]:
    """One of its own; there is one, as there is another."""
    with PostgresServer(tmp_path, wal_sender_timeout="5s") as made:
        yield made


@pytest.fixture
def of(server: PostgresServer) -> Iterator[Followed]:
    """Followed up to now, and let go of."""
    made = Followed(server, T, ["t"])
    made.catch_up()
    yield made
    if made.engine:
        made.engine.close()


def let_go(of: Followed) -> None:
    assert of.engine
    of.engine.close()
    with connect(of.server.url) as connection:
        assert until(lambda: (slot := describe_slot(connection, of.schema)) is not None and not slot.reader, PATIENCE)


def copied(server: PostgresServer, name: str) -> Path:
    """The data of a server that is stopped, beside it."""
    place = server.place / name
    shutil.copytree(server.place / "data", place)
    shutil.copystat(server.place / "data", place)
    _same_owner(server.place / "data", place)
    return place


def put_back(server: PostgresServer, place: Path) -> None:
    shutil.rmtree(server.place / "data")
    place.rename(server.place / "data")


def _same_owner(of: Path, place: Path) -> None:
    owner = of.stat()
    for path in [place, *place.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid)


def refused(of: Followed, kind: type[CaptureError], what: str) -> CaptureError:
    with pytest.raises(kind, match=what) as found:
        of.start()
    assert "--resnapshot" in (found.value.hint or "")
    return found.value


def test_a_slot_that_was_dropped_stops_it(of: Followed) -> None:
    let_go(of)
    with connect(of.server.url) as connection:
        drop_slot(connection, of.schema)
    of.sql("insert into t values (2, 'y')")
    refused(of, SlotLost, "is not there any more: changes since then are missing")


def test_a_slot_that_was_made_anew_stops_it(of: Followed) -> None:
    let_go(of)
    with connect(of.server.url) as connection:
        drop_slot(connection, of.schema)
        of.sql("insert into t values (2, 'y')")
        create_slot(connection, of.schema)
    error = refused(of, SlotLost, "behind what was read")
    assert any("made the slot anew or moved it on" in line for line in error.detail)


def test_a_slot_that_somebody_moved_on_stops_it(of: Followed) -> None:
    let_go(of)
    of.sql("insert into t values (2, 'y')")
    of.server.execute("select pg_replication_slot_advance(%s, pg_current_wal_lsn())", of.schema)
    refused(of, SlotLost, "behind what was read")


def test_a_slot_that_the_server_has_invalidated_stops_it(of: Followed) -> None:
    let_go(of)
    of.server.execute("alter system set max_slot_wal_keep_size = '1MB'")
    of.server.execute("select pg_reload_conf()")

    def lost() -> bool:
        of.sql("insert into t select i, repeat('x', 1000) from generate_series(100, 3000) i; delete from t where id >= 100")
        of.server.execute("select pg_switch_wal()")
        of.server.execute("checkpoint")
        with connect(of.server.url) as connection:
            slot = describe_slot(connection, of.schema)
            return slot is not None and slot.lost

    assert until(lost, PATIENCE)
    error = refused(of, SlotLost, "was invalidated: changes since then are missing")
    assert error.detail == ("the server says: wal_removed",)


def test_a_slot_that_goes_while_it_is_read_stops_it(of: Followed) -> None:
    of.server.execute("select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s", of.schema)
    with connect(of.server.url) as connection:

        def dropped() -> bool:
            try:
                drop_slot(connection, of.schema)
            except SlotInUse:
                return False
            return True

        assert until(dropped, PATIENCE)
    with pytest.raises(Disconnected):
        until(lambda: bool(of.go_on()), PATIENCE)
    refused(of, SlotLost, "is not there any more")


def test_a_server_that_was_restored_from_an_older_copy_stops_it(of: Followed) -> None:
    let_go(of)
    of.server.stop()
    older = copied(of.server, "older")
    of.server.start()
    of.start()
    of.sql("insert into t select i, repeat('x', 1000) from generate_series(2, 5000) i")
    of.catch_up()
    let_go(of)
    of.server.stop()
    put_back(of.server, older)
    of.server.start()
    error = refused(of, NotFollowable, "before what was read from it")
    assert any("restored from an older copy" in line for line in error.detail)


def test_another_server_stops_it(of: Followed, tmp_path: Path) -> None:
    let_go(of)
    of.sql("insert into t values (2, 'y')")
    with PostgresServer(tmp_path / "other") as other:
        other.execute(f"create schema {of.schema}; set search_path to {of.schema}; {T} create publication {of.schema} for table t")
        with connect(other.url) as connection:
            create_slot(connection, of.schema)
            ahead = other.execute("select pg_current_wal_lsn() > %s::pg_lsn", lsn_text(of.position.end))
        of.server, before = other, of.server
        if ahead == [(True,)]:
            refused(of, SlotLost, "behind what was read")  # its log is another one, and is further
        else:
            refused(of, NotFollowable, "before what was read from it")
        of.server = before


def test_a_position_of_another_server_is_refused_though_its_log_would_fit(of: Followed) -> None:
    with pytest.raises(NotFollowable, match="another server than the one that was followed") as found:
        check_server(of.position, System("another", 1))
    assert "--resnapshot" in (found.value.hint or "")


def test_a_server_that_was_promoted_is_on_another_timeline_and_stops_it(of: Followed) -> None:
    let_go(of)
    of.server.stop()
    (of.server.place / "data" / "standby.signal").touch()
    _same_owner(of.server.place / "data", of.server.place / "data")
    of.server.start()
    of.server.execute("select pg_promote()")
    assert until(lambda: of.server.execute("select pg_is_in_recovery()") == [(False,)], PATIENCE)
    of.sql("insert into t values (2, 'y')")
    of.server.execute("checkpoint")
    error = refused(of, NotFollowable, "the server is on timeline 2; it was followed on timeline 1")
    assert any("a standby has taken over" in line for line in error.detail)


def test_a_server_that_crashes_and_forgets_what_was_confirmed_sends_again_and_nothing_is_doubled(of: Followed) -> None:
    for i in range(2, 12):
        of.sql(f"insert into t values ({i}, 'y')")
        of.catch_up()
    of.server.restart_at_once()
    of.sql("insert into t values (12, 'z')")
    of.start().catch_up()
    assert [row["id"] for _, row in of.changes("t")] == list(range(1, 13))


def test_a_slot_that_is_still_read_after_a_kill_is_waited_for(of: Followed) -> None:
    first, of.engine = of.engine, None
    waited: list[Followed] = []
    thread = threading.Thread(target=lambda: waited.append(of.start()))
    thread.start()
    thread.join(0.5)
    assert not waited
    assert first
    first.close()
    thread.join(PATIENCE)
    assert waited
    of.sql("insert into t values (2, 'y')")
    of.catch_up()
    assert len(of.rows("t")) == 2


def test_a_publication_that_was_dropped_stops_it(of: Followed) -> None:
    of.server.execute(f"drop publication {of.schema}")
    of.sql("insert into t values (2, 'y')")
    with pytest.raises(NotFollowable, match=r"there is no publication|not there any more"):
        until(lambda: bool(of.go_on()), PATIENCE)
    with pytest.raises(NotFollowable, match="there is no publication"):
        of.start()


def test_a_database_that_is_not_there_is_no_passing_trouble(of: Followed) -> None:
    let_go(of)
    with pytest.raises(NotFollowable, match="cannot be reached"):
        of.start(of.server.url.replace("/postgres", "/nowhere"))
