"""Slots and publications on a real PostgreSQL: made, described and dropped under any name."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.capture.postgres.connecting import connect
from penstock.capture.postgres.lsn import lsn_of, lsn_text
from penstock.capture.postgres.slots import (
    create_publication,
    create_slot,
    describe_publication,
    describe_slot,
    drop_publication,
    drop_slot,
)
from penstock.errors import AlreadyThere, BadInput, CaptureError, NotFollowable, NotFound
from penstock.testing.servers.postgres import PostgresServer

NASTY = "we\"ird'; drop table users; -- %s ä"


@pytest.fixture
def connection(postgres: PostgresServer) -> Iterator[Any]:
    with connect(postgres.url) as made:
        yield made


def test_a_slot_is_made_described_and_dropped(connection: Any) -> None:
    assert describe_slot(connection, "slots_a") is None
    made = create_slot(connection, "slots_a")
    found = describe_slot(connection, "slots_a")
    assert found is not None
    assert (found.confirmed_lsn, found.plugin, found.database, found.reader, found.lost) == (
        made,
        "pgoutput",
        "postgres",
        None,
        False,
    )
    assert found.restart_lsn is not None
    assert found.restart_lsn <= made
    with pytest.raises(AlreadyThere, match="there is a replication slot 'slots_a' already"):
        create_slot(connection, "slots_a")
    drop_slot(connection, "slots_a")
    with pytest.raises(NotFound, match="there is no replication slot 'slots_a'"):
        drop_slot(connection, "slots_a")


def test_a_name_that_the_server_refuses_is_one_of_our_errors(connection: Any) -> None:
    with pytest.raises(CaptureError, match="cannot create replication slot"):
        create_slot(connection, NASTY)


def test_a_publication_takes_any_name_and_tables_of_any_name(connection: Any, postgres: PostgresServer) -> None:
    quoted = '"' + NASTY.replace('"', '""') + '"'
    postgres.execute(f"create schema {quoted}; create table {quoted}.{quoted} (id int primary key)")
    assert describe_publication(connection, NASTY) is None
    create_publication(connection, NASTY, [(NASTY, NASTY)])
    assert describe_publication(connection, NASTY) == [(NASTY, NASTY)]
    with pytest.raises(AlreadyThere):
        create_publication(connection, NASTY, [(NASTY, NASTY)])
    drop_publication(connection, NASTY)
    with pytest.raises(NotFound):
        drop_publication(connection, NASTY)


def test_a_publication_without_tables_or_of_a_missing_table_is_refused(connection: Any) -> None:
    with pytest.raises(NotFollowable, match="has no tables"):
        create_publication(connection, "slots_b", [])
    with pytest.raises(CaptureError, match="cannot create publication 'slots_b'"):
        create_publication(connection, "slots_b", [("public", "nowhere")])


def test_a_user_without_the_right_is_told_so(postgres: PostgresServer) -> None:
    postgres.execute("create role slots_reader login")
    with (
        connect(postgres.url.replace("postgres@", "slots_reader@")) as made,
        pytest.raises(NotFollowable, match="the user may not"),
    ):
        create_slot(made, "slots_c")


def test_positions_are_read_and_written_as_the_server_does() -> None:
    assert lsn_text(lsn_of("16/B374D848")) == "16/B374D848"
    assert lsn_of("0/0") == 0
    for text in ("", "16", "16/", "1/123456789", "x/1"):
        with pytest.raises(BadInput):
            lsn_of(text)
