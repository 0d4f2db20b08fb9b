"""Captures of a real PostgreSQL for tests of reconcile, repair and resnapshot; with an engine that errs where a test wants it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import orjson
import psycopg
import pyarrow as pa

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import kind_of
from penstock.capture.port import Batch, Changes, Engine
from penstock.capture.reconcile import Followed, followed
from penstock.capture.registry import LOCK, Captures
from penstock.capture.runner import CaptureRun
from penstock.capture.writing.journal import CaptureState
from penstock.core.arrow import values_in
from penstock.log.open import open_log
from penstock.testing.contracts.capture.following import Around
from penstock.testing.contracts.capture.records import Record, records_of
from penstock.testing.servers.postgres import PostgresServer
from waiting import until

NUMBERS = count()
Edit = Callable[[Changes], Changes]


class Erring(Around):
    """An engine whose changes are edited on their way."""

    def __init__(self, engine: Engine, edit: Edit) -> None:
        super().__init__(engine)
        self._edit = edit

    def next(self, wait: float) -> Batch | None:
        batch = super().next(wait)
        return batch and replace(batch, changes=[self._edit(each) for each in batch.changes])


def without(*ids: int) -> Edit:
    """Loses the changes of these keys."""
    return lambda changes: kept(changes, [orjson.loads(key)["id"] not in ids for key in values_in(changes.key, str)])


def kept(changes: Changes, which: Sequence[bool]) -> Changes:
    flags = pa.array(which, pa.bool_())
    places = flags.to_numpy(zero_copy_only=False)
    return replace(
        changes,
        op=changes.op[places],
        key=changes.key.filter(flags),
        before=changes.before.filter(flags),
        after=changes.after.filter(flags),
        transaction=changes.transaction[places],
        index=changes.index[places],
        unchanged=changes.unchanged if places.any() else None,
    )


def replacing(old: str, new: str) -> Edit:
    """Changes a text of keys and rows."""

    def edited(texts: pa.Array) -> pa.Array:
        return pa.array([text and text.replace(old, new) for text in texts.to_pylist()], pa.utf8())

    return lambda changes: replace(changes, key=edited(changes.key), after=edited(changes.after))


class Shop:
    """A capture of tables of a server, in a schema of its own. ddl: what is executed first; {schema} is its schema."""

    def __init__(self, server: PostgresServer, home: Path, ddl: str, tables: Sequence[str], **settings: Any) -> None:
        self.server, self.home, self.name = server, home, f"shop{next(NUMBERS)}"
        self.schema = self.name
        self.sql(f"create schema {self.schema}; set search_path = {self.schema}; {ddl}")
        named = tuple((self.schema, table) for table in tables)
        definition = CaptureDefinition(self.name, settings.pop("engine", "postgres"), server.url, named, **settings)
        self.definition = kind_of(definition.engine).set_up(definition)
        self.captures, self.log = Captures(home), open_log(home)
        self.captures.add(self.definition)
        self.of = followed(self.name, self.log, self.captures)

    def sql(self, statements: str, *values: object) -> list[tuple[Any, ...]]:
        return self.server.execute(statements.replace("{schema}", self.schema if hasattr(self, "schema") else ""), *values)

    def erring(self, edit: Edit) -> Followed:
        """The same capture with an engine that errs."""
        return replace(self.of, engine=lambda: Erring(self.of.engine(), edit))

    def catch_up(self, of: Followed | None = None) -> CaptureState:
        return (of or self.of).run().run(catch_up=True)

    @contextmanager
    def running(self) -> Iterator[CaptureRun]:
        """The capture runs in a thread."""
        run, failed = self.of.run(), list[BaseException]()

        def work() -> None:
            try:
                run.run()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            assert until(lambda: self._held() or not thread.is_alive())
            yield run
        finally:
            run.stop()
            thread.join()
            assert not failed, failed

    def _held(self) -> bool:
        with self.of.storage.lock(LOCK, wait=False) as mine:
            return not mine

    def topic(self, table: str) -> str:
        return self.definition.names.topic((self.schema, table))

    def records(self, table: str) -> list[Record]:
        return records_of(self.log, self.topic(table))

    def folded(self, table: str) -> dict[str, Any]:
        """What the topic leaves, by key."""
        rows: dict[str, Any] = {}
        for record in self.records(table):
            if record.value is None or (not self.definition.flat and record.value["op"] == "d"):
                rows.pop(record.key, None)
            else:
                rows[record.key] = record.value if self.definition.flat else record.value["after"]
        return rows

    def rows(self, table: str, key: str = "id") -> dict[str, Any]:
        """What the table has, by key, as texts."""
        with psycopg.connect(self.server.url) as connection:
            found = connection.execute(f'select "{key}", to_jsonb(t) from {self.schema}."{table}" t').fetchall()  # type: ignore[arg-type]
        return {orjson.dumps({key: of}).decode(): row for of, row in found}

    def free(self) -> None:
        """Waits until nobody reads its slot: the server may notice late that a reader is gone."""

        def nobody() -> bool:
            slot = self.definition.options.get("slot")
            active = self.server.execute("select active from pg_replication_slots where slot_name = %s", slot)
            return active in ([], [(False,)])

        assert until(nobody)

    def lose_slot(self) -> None:
        self.free()
        self.sql("select pg_drop_replication_slot(%s)", self.definition.options["slot"])

    def remove(self) -> None:
        """Drops what the server keeps for it."""
        self.free()
        kind_of(self.definition.engine).tear_down(self.definition)


@contextmanager
def writing(shop: Shop, sessions: int) -> Iterator[Callable[[], int]]:
    """Sessions that change the table at random; how many statements they have executed."""
    counts, stopping = [0] * sessions, threading.Event()

    def work(session: int) -> None:
        random = Random(session)
        with psycopg.connect(shop.server.url, autocommit=True) as connection:
            while not stopping.is_set():
                key = random.randrange(1, 1200)
                with connection.transaction():
                    for _ in range(random.randrange(1, 4)):
                        connection.execute(statement(random, key))  # type: ignore[call-overload]
                        key += 1  # all sessions lock in the same order
                counts[session] += 1

    def statement(random: Random, key: int) -> str:
        table, name = f"{shop.schema}.users", f"'{random.random()}'"
        upsert = f"insert into {table} values ({key}, {name}, 'n') on conflict (id) do update set name = {name}"
        update = f"update {table} set name = {name} where id = {key}"
        return random.choice([upsert, update, f"delete from {table} where id = {key}"])

    with ThreadPoolExecutor(sessions) as pool:
        done = [pool.submit(work, session) for session in range(sessions)]
        try:
            yield lambda: sum(counts)
        finally:
            stopping.set()
        for each in done:
            each.result()
