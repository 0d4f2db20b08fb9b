"""The accounts of a bank, which others copy every night; and what they see of what happens by day.

python bank.py prepare        makes the table, and the topic of the copy by updated_at
python bank.py work           some days of changes; in each night the accounts are copied, in two ways
python bank.py compare        what each way has seen, how late, and what it has read for that

DATABASE_URL says where the database is.
"""

import os
import random
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson
import psycopg

from penstock import Producer, TopicSpec, open_log
from penstock.log.consumer import records

ACCOUNTS, DAYS, A_DAY = 1_000, 3, 300  # and changes a day
TOPICS = {"copied": "nightly.public.accounts", "newer": "newer", "followed": "bank.public.accounts"}
Connection = psycopg.Connection[tuple[Any, ...]]


def database() -> Connection:
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)


def prepare() -> None:
    """`history` has every change in the order of commits: what the copies are measured by."""
    with database() as bank:
        bank.execute("create table accounts (id int primary key, balance int not null, updated_at timestamptz not null)")
        bank.execute(f"insert into accounts select id, 0, clock_timestamp() from generate_series(1, {ACCOUNTS}) id")
        bank.execute("create table history (number serial primary key, account int, balance int, at bigint)")
        bank.execute("create table reads (way text, rows int)")
        bank.execute("insert into reads select way, count(*) from accounts, unnest(array['copied', 'followed']) way group by way")
    open_log().create(TopicSpec("newer"))
    newer()


class Workload:
    """Changes of accounts, the same at every run. The balance is the number of the change, so that no two are alike."""

    def __init__(self, bank: Connection, seed: int = 23) -> None:
        self._bank, self._dice = bank, random.Random(seed)
        self._live, self._next, self._number = list(range(1, ACCOUNTS + 1)), ACCOUNTS + 1, 0
        self._slow = [self._live.pop() for _ in range(DAYS)]  # one a day

    def change(self) -> None:
        """An account is opened, closed, or, most of the time, one of a few busy ones or a new one changes."""
        kind = self._dice.random()
        if kind < 0.1:
            account, self._next = self._next, self._next + 1
            self._live.append(account)
            self.run(self._bank, "insert into accounts values (%(account)s, %(balance)s, clock_timestamp())", account)
        elif kind < 0.2:
            account = self._live.pop(self._dice.choice([-1, -2, self._dice.randrange(100)]))
            self.run(self._bank, "delete from accounts where id = %(account)s", account, gone=True)
        else:
            account = self._live[self._dice.choice([self._dice.randrange(20), self._dice.randrange(len(self._live))])]
            self.update(self._bank, account)

    def update(self, bank: Connection, account: int) -> None:
        statement = "update accounts set balance = %(balance)s, updated_at = clock_timestamp() where id = %(account)s"
        self.run(bank, statement, account)

    def run(self, bank: Connection, statement: str, account: int, gone: bool = False) -> None:
        self._number += 1
        bank.execute(statement.encode(), {"account": account, "balance": self._number})
        self.committed(account, None if gone else self._number)

    def committed(self, account: int, balance: int | None) -> None:
        at = time.time_ns() // 1000
        self._bank.execute("insert into history (account, balance, at) values (%s, %s, %s)", (account, balance, at))

    def slow(self, bank: Connection) -> Callable[[], None]:
        """A change that takes over midnight; what commits it."""
        self._number += 1
        account, balance = self._slow.pop(), self._number
        bank.execute("begin")
        bank.execute("update accounts set balance = %s, updated_at = clock_timestamp() where id = %s", (balance, account))

        def commit() -> None:
            bank.execute("commit")
            self.committed(account, balance)

        return commit


def work(night: Callable[[], None]) -> None:
    with database() as bank, database() as second:
        workload = Workload(bank)
        for _ in range(DAYS):
            commit = workload.slow(second)
            for _ in range(A_DAY):
                workload.change()
            copy(bank, night)
            commit()
        copy(bank, night)


def copy(bank: Connection, night: Callable[[], None]) -> None:
    """Whoever reads all accounts reads as many rows as there are."""
    bank.execute("insert into reads select 'copied', count(*) from accounts")
    night()
    newer()


def newer() -> None:
    """The cheaper copy: the rows that say that they are newer than the newest it has."""
    with database() as bank:
        seen = [orjson.loads(record.value)["updated_at"] for record in records(open_log().topic("newer"))]
        rows = bank.execute(
            "select id, balance, updated_at from accounts where updated_at > %s order by updated_at",
            (max(seen, default="-infinity"),),
        ).fetchall()
        bank.execute("insert into reads values ('newer', %s)", (len(rows),))
    with Producer(open_log().topic("newer")) as producer:
        for id, balance, updated_at in rows:
            producer.send(orjson.dumps({"id": id, "balance": balance, "updated_at": updated_at}))


class Change(NamedTuple):
    account: int
    balance: int | None  # None: it was closed
    at: int  # when it was committed, or when a topic had it, in microseconds


def history() -> list[Change]:
    with database() as bank:
        return [Change(*row) for row in bank.execute("select account, balance, at from history order by number")]


def told(topic: str) -> Iterator[Change]:
    """What a topic says of changes, in its order, without the rows that were there in the beginning."""
    for record in records(open_log().topic(topic)):
        if record.value is None:
            continue
        said = orjson.loads(record.value)
        gone = said.get("op") == "d"
        row = said["before"] if gone else said.get("after", said)
        if gone or row["balance"]:
            yield Change(row["id"], None if gone else row["balance"], record.appended)


class Seen(NamedTuple):
    """What one way has seen."""

    rows_read: int
    changes: int  # that it knows of, one by one
    closed: int  # accounts of which it knows that they were closed
    unknown: int  # accounts of which it never knew that they were there
    wrong: int  # accounts that it has otherwise than the bank, or has and the bank has not, or the other way round
    late: list[int]  # of each change that it came to know of, or of a later one of that account: how many changes later
    seconds: list[float]


def compare(way: str) -> Seen:
    happened, seen = history(), list(told(TOPICS[way]))
    number = {change[:2]: n for n, change in enumerate(happened)}
    times = [change.at for change in happened]
    known: dict[int, list[tuple[int, int]]] = {}  # account: number of the change, and when it was known
    for change in seen:
        known.setdefault(change.account, []).append((number[change[:2]], change.at))
    late, seconds = [], []
    for n, change in enumerate(happened):
        at = next((at for later, at in known.get(change.account, ()) if later >= n), None)
        if at is not None:
            late.append(max(0, bisect_right(times, at) - n - 1))
            seconds.append(max(0, at - change.at) / 1e6)
    with database() as bank:
        now = dict(bank.execute("select id, balance from accounts").fetchall())
        ((read,),) = bank.execute("select coalesce(sum(rows), 0) from reads where way = %s", (way,)).fetchall()
    held = {change.account: change.balance for change in seen}
    mine = dict.fromkeys(range(1, ACCOUNTS + 1), 0) | held
    mine = {account: balance for account, balance in mine.items() if balance is not None}
    wrong = sum(now.get(account) != mine.get(account) for account in now.keys() | mine.keys())
    closed = sum(change.balance is None for change in seen)
    unknown = len({change.account for change in happened} - held.keys())
    return Seen(read, len({change[:2] for change in seen}), closed, unknown, wrong, late, seconds)


def mean(values: list[Any]) -> float:
    return sum(values) / max(1, len(values))


def most(values: list[Any]) -> float:
    """What 95 of 100 are not above."""
    return float(sorted(values)[int(0.95 * (len(values) - 1))]) if values else 0.0


def shown() -> Iterator[str]:
    happened = history()
    closed = sum(change.balance is None for change in happened)
    yield f"{len(happened)} changes, {closed} accounts closed"
    yield f"{'':9} rows read  changes  closed  unknown  wrong   changes behind     seconds behind"
    for way in TOPICS:
        seen = compare(way)
        behind = f"{mean(seen.late):.0f}, {most(seen.late):.0f}", f"{mean(seen.seconds):.3f}, {most(seen.seconds):.3f}"
        facts = f"{seen.rows_read:>9} {seen.changes:>8} {seen.closed:>7} {seen.unknown:>8} {seen.wrong:>6}"
        yield f"{way:9} {facts} {behind[0]:>16} {behind[1]:>18}"


def main(command: str) -> None:
    if command == "prepare":
        prepare()
    elif command == "work":
        work(lambda: subprocess.run(["penstock", "cdc", "run", "nightly", "--catch-up"], check=True) and None)
    else:
        print("\n".join(shown()))


if __name__ == "__main__":
    main(sys.argv[1])
