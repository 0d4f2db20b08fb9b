"""A capture of PostgreSQL that is started again, where little has happened since."""

from pathlib import Path

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import kind_of
from penstock.capture.runner import CaptureRun
from penstock.capture.writing.journal import CaptureState
from penstock.log.open import open_log
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.capture.records import records_of
from penstock.testing.servers.postgres import PostgresServer


def test_a_table_that_was_copied_and_never_changed_is_followed_on(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.execute("create table stays (id int primary key); insert into stays select generate_series(1, 3)")
    kind = kind_of("postgres")
    definition = kind.set_up(CaptureDefinition("restarts", "postgres", postgres.url, (("public", "stays"),), id="r"))

    def caught_up() -> CaptureState:
        storage = LocalStorage(tmp_path / "capture")
        return CaptureRun(definition, open_log(tmp_path), storage, kind.open(definition, storage)).run(catch_up=True)

    assert caught_up().offsets == {"restarts.public.stays": [3]}
    assert caught_up().offsets == {"restarts.public.stays": [3]}
    postgres.execute("insert into stays values (4)")
    assert caught_up().offsets == {"restarts.public.stays": [4]}
    kind.tear_down(definition)


def test_rows_that_the_stream_has_told_of_are_not_copied_again(postgres: PostgresServer, tmp_path: Path) -> None:
    """Changes that commit between the making of the slot and the copy come by the stream, and the copy sees them, too."""
    postgres.execute("create table early (id int primary key, name text); insert into early values (1, 'a'), (2, 'b'), (3, 'c')")
    kind = kind_of("postgres")
    definition = kind.set_up(CaptureDefinition("early", "postgres", postgres.url, (("public", "early"),), id="e"))
    postgres.execute("insert into early values (4, 'd'); update early set name = 'B' where id = 2; delete from early where id = 3")
    storage = LocalStorage(tmp_path / "capture")
    log = open_log(tmp_path)
    CaptureRun(definition, log, storage, kind.open(definition, storage)).run(catch_up=True)
    told = [(record.value["op"], record.key) for record in records_of(log, "early.public.early") if record.value]
    assert told == [("c", '{"id":4}'), ("u", '{"id":2}'), ("d", '{"id":3}'), ("r", '{"id":1}')]
    kind.tear_down(definition)
