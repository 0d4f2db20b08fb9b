"""The writer: batches of a scripted engine, cut short at every point and begun again, are in the topics once and in order."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amount import cases
from capture_scripted import FACTS, ORDERS, TABLES, USERS, ScriptedEngine, Truncate, Work, Write, batch_of, random_script
from capture_topics import check_flat, check_journal, check_topics
from penstock.capture.naming import TopicNames
from penstock.capture.port import CREATE, UPDATE
from penstock.capture.writing.envelopes import Envelope
from penstock.capture.writing.writer import POINTS, Writer, nothing
from penstock.errors import Fenced, Mismatch
from penstock.log.file.log import FileLog
from penstock.log.memory import MemoryLog
from penstock.log.port import Log, TopicSpec
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.capture.records import journal_of, records_of
from penstock.testing.contracts.sink import Crash, CrashAt

NAMES = TopicNames("shop")
LOGS: dict[str, Callable[[], Log]] = {"memory": MemoryLog, "file": lambda: FileLog(MemoryStorage())}


@pytest.fixture(params=LOGS)
def new_log(request: pytest.FixtureRequest) -> Callable[[], Log]:
    return LOGS[request.param]


def writer_of(log: Log, fail: Callable[[str], None] = nothing, partitions: int = 1, flat: bool = False) -> Writer:
    return Writer(log, NAMES, Envelope("shop", "scripted", "script", flat), partitions, fail)


def write_all(writer: Writer, engine: ScriptedEngine) -> None:
    """What a run does: from where the journal stands, to the end."""
    found = writer.open()
    engine.start(found.state.position, found.unfinished)
    while batch := engine.next(0):
        engine.written(writer.write(batch).position or {})


class CrashAtAny:
    """Ends the process when so many points were passed, whichever they are."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __call__(self, point: str) -> None:
        assert point in POINTS
        self.left -= 1
        if not self.left:
            raise Crash(point)


def crashed(writer: Writer, engine: ScriptedEngine) -> bool:
    try:
        write_all(writer, engine)
    except Crash:
        return True
    return False


def test_a_script_is_written_once_in_order(new_log: Callable[[], Log]) -> None:
    log, script = new_log(), random_script(Random(1), 30)
    write_all(writer_of(log), ScriptedEngine(script, Random(1)))
    check_topics(log, NAMES, script)
    check_journal(log, NAMES, script)


def test_a_crash_at_every_point_of_every_batch_loses_nothing_and_doubles_nothing(new_log: Callable[[], Log]) -> None:
    script = random_script(Random(2), 8)
    for point in POINTS:
        nth = 1
        while True:
            log = new_log()
            died = crashed(writer_of(log, CrashAt(point, nth)), ScriptedEngine(script, Random(nth)))
            check_journal(log, NAMES, script, whole=not died)
            write_all(writer_of(log), ScriptedEngine(script, Random(nth + 1)))
            check_topics(log, NAMES, script)
            check_journal(log, NAMES, script)
            if not died:
                break
            nth += 1
        assert nth > len(script) // 4, f"{point} is hardly ever passed"


@settings(max_examples=cases(20))
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_crashes_upon_crashes_lose_nothing_and_double_nothing(seed: int, partitions: int) -> None:
    random = Random(seed)
    script, log = random_script(random, 12), MemoryLog()
    for _ in range(1000):
        if not crashed(writer_of(log, CrashAtAny(random.randint(1, 9)), partitions), ScriptedEngine(script, random)):
            break
        check_journal(log, NAMES, script, whole=False)
    check_topics(log, NAMES, script)
    check_journal(log, NAMES, script)


@settings(max_examples=cases(20))
@given(st.integers(0, 2**32))
def test_flat_topics_have_each_row_once_through_crashes(seed: int) -> None:
    random = Random(seed)
    script, log = random_script(random, 12), MemoryLog()
    while crashed(writer_of(log, CrashAtAny(random.randint(1, 9)), flat=True), ScriptedEngine(script, random)):
        pass
    check_flat(log, NAMES, script)


def test_rows_of_a_key_stay_in_one_partition(new_log: Callable[[], Log]) -> None:
    log, script = new_log(), random_script(Random(3), 60)
    write_all(writer_of(log, partitions=3), ScriptedEngine(script, Random(3)))
    check_topics(log, NAMES, script)
    check_journal(log, NAMES, script)
    for table in TABLES:
        homes = {(record.key, record.partition) for record in records_of(log, NAMES.topic(table))}
        assert len({partition for _, partition in homes}) == 3
        assert len(homes) == len({key for key, _ in homes})


def test_what_end_says_is_there_at_every_point_that_is_passed() -> None:
    """Whoever reads up to the offsets of an END never has half a transaction, whenever they look."""
    script, log, looked = random_script(Random(4), 12), MemoryLog(), 0

    def look(point: str) -> None:
        nonlocal looked
        looked += 1
        check_journal(log, NAMES, script, whole=False)

    write_all(writer_of(log, look), ScriptedEngine(script, Random(4)))
    assert looked > len(script)


def test_a_writer_that_was_replaced_is_refused_wherever_it_wakes_up(new_log: Callable[[], Log]) -> None:
    """It falls asleep at a point, another one goes on to the end; then it wakes up."""
    script, asleep = random_script(Random(5), 8), 0
    for nth in range(1, 40):
        log = new_log()
        left = nth

        def replaced(point: str, log: Log = log, seed: int = nth) -> None:
            nonlocal left, asleep
            left -= 1
            if not left:
                asleep += 1
                write_all(writer_of(log), ScriptedEngine(script, Random(seed)))

        try:
            write_all(writer_of(log, replaced), ScriptedEngine(script, Random(nth + 1)))
            assert left >= 0, "the one that was replaced has gone on"
        except Fenced:
            assert left <= 0
        check_topics(log, NAMES, script)
        check_journal(log, NAMES, script)
    assert asleep > 20


def test_a_writer_that_was_replaced_makes_no_topic_that_the_next_one_takes_for_its_own(new_log: Callable[[], Log]) -> None:
    """It has noted down its first batch and made no topic yet; the next one has opened and not written."""
    log, script = new_log(), [Work("1:1", (Write(USERS, CREATE, 1, "a"), Write(ORDERS, CREATE, 1, "b")))]
    later = writer_of(log)

    def opened(point: str) -> None:
        if point == "capture.begun":
            later.open()

    with pytest.raises(Fenced):
        write_all(writer_of(log, opened), ScriptedEngine(script, Random(1)))
    write_all(later, ScriptedEngine(script, Random(2)))
    check_topics(log, NAMES, script)
    check_journal(log, NAMES, script)


def test_a_transaction_in_parts_is_counted_as_a_whole(new_log: Callable[[], Log]) -> None:
    steps = tuple(Write((USERS, ORDERS)[i % 3 == 0], CREATE, i, str(i)) for i in range(10))
    log, script = new_log(), [Work("1:1", steps), Work("2:2", steps[:1])]
    writer = writer_of(log)
    writer.open()
    for start, stop in [((0, 0), (0, 4)), ((0, 4), (0, 5)), ((0, 5), (1, 0)), ((1, 0), (2, 0))]:
        state = writer.write(batch_of(script, start, stop))
        assert (state.open is not None) == (stop[1] > 0)
    check_topics(log, NAMES, script)
    check_journal(log, NAMES, script)
    assert [record.status for record in journal_of(log, "shop")] == ["BEGIN", "PART", "PART", "PART", "PART", "END", "BEGIN", "END"]


def test_a_truncate_deletes_the_keys_that_are_there_and_no_others(new_log: Callable[[], Log]) -> None:
    log = new_log()
    steps = (Write(USERS, UPDATE, 1, "x"), Truncate(USERS), Write(USERS, CREATE, 2, "y"), Truncate(USERS), Truncate(ORDERS))
    first = Work("1:1", (Write(USERS, CREATE, 1, "a"), Write(USERS, CREATE, 3, "c")))
    script = [first, Work("2:2", steps), Work("3:3", (Write(USERS, CREATE, 1, "z"),))]
    for stop in range(len(script)):
        writer = writer_of(log)
        writer.open()
        writer.write(batch_of(script, (stop, 0), (stop + 1, 0)))
    check_topics(log, NAMES, script)
    check_journal(log, NAMES, script)
    deletes = [record.key for record in records_of(log, NAMES.topic(USERS)) if record.value is None]
    assert deletes == ['{"id":1}', '{"id":3}', '{"id":2}']


def test_a_topic_that_somebody_else_writes_is_left_alone(new_log: Callable[[], Log]) -> None:
    log = new_log()
    log.create(TopicSpec(NAMES.topic(USERS)))
    writer = writer_of(log)
    writer.open()
    with pytest.raises(Mismatch, match="it is written by producers"):
        writer.write(batch_of([Work("1:1", (Write(USERS, CREATE, 1, "a"),))], (0, 0), (1, 0)))
    assert records_of(log, NAMES.topic(USERS)) == []


def test_topics_know_their_tables_and_a_batch_without_rows_makes_them() -> None:
    log, script = MemoryLog(), [Work("1:1", (Write(USERS, CREATE, 1, "a"),))]
    writer = writer_of(log, partitions=2)
    writer.open()
    batch = batch_of(script, (0, 0), (1, 0))
    state = writer.write(replace(batch, changes=()))
    assert state.offsets == {"shop.public.users": [0, 0]}
    assert state.tables["shop.public.users"] == {
        "schema": "id long, v string",
        "key": ("id",),
        "table": ["public", "users"],
        "flat": False,
    }


def test_rows_from_before_what_is_known_of_a_table_was_lost_count_as_of_other_columns() -> None:
    log, script = MemoryLog(), [Work(f"{n}:{n}", (Write(USERS, CREATE, n, "a"),)) for n in range(1, 5)]
    writer = writer_of(log)
    writer.open()
    for n in range(3):
        writer.write(replace(batch_of(script, (n, 0), (n + 1, 0)), tables={USERS: FACTS} if n == 0 else {}))
    log.alter(replace(log.topic("shop.transaction").spec, retain_bytes=1))
    log.clean("shop.transaction")
    writer = writer_of(log)
    assert writer.open().state.tables == {}
    assert writer.write(batch_of(script, (3, 0), (4, 0))).tables["shop.public.users"]["since"] == [3]
    assert [record.key for record in records_of(log, NAMES.topic(USERS))] == [f'{{"id":{n}}}' for n in range(1, 5)]
