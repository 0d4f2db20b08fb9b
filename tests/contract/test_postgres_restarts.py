"""A capture of PostgreSQL that is started again, where little has happened since."""

from pathlib import Path

from penstock.capture.definition import CaptureDefinition
from penstock.capture.journal import CaptureState
from penstock.capture.kind import kind_of
from penstock.capture.runner import CaptureRun
from penstock.log.open import open_log
from penstock.storage.local import LocalStorage
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
