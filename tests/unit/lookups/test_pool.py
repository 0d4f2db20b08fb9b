"""A pool of connections: bounded, opened when needed, closed with the last that uses it, and never one that has died."""

import threading
from dataclasses import dataclass, field

import pytest

from penstock.lookups import pool as of_pools
from penstock.lookups.pool import NoConnection, Pool, Shared
from waiting import until


@dataclass
class Line:
    number: int
    open: bool = True
    dead: bool = False

    def close(self) -> None:
        assert self.open, "closed twice"
        self.open = False


@dataclass
class Server:
    """Hands out lines, and counts them."""

    lines: list[Line] = field(default_factory=list)
    time: float = 0.0
    most: int = 0

    def connect(self) -> Line:
        self.lines.append(Line(len(self.lines)))
        self.most = max(self.most, self.open)
        return self.lines[-1]

    def alive(self, line: Line) -> None:
        if line.dead:
            raise ConnectionError("gone")

    @property
    def open(self) -> int:
        return sum(line.open for line in self.lines)

    def pool(self, most: int = 2) -> Pool[Line]:
        return Pool(self.connect, self.alive, most, lambda: self.time)


def test_a_connection_is_used_again_and_only_as_many_as_are_needed_are_opened() -> None:
    server = Server()
    pool = server.pool()
    for _ in range(5):
        with pool.connection() as line:
            assert line.number == 0
    with pool.connection() as one, pool.connection() as other:
        assert {one.number, other.number} == {0, 1}
    assert (pool.open, server.open) == (2, 2)
    pool.close()
    assert (pool.open, server.open) == (0, 0)


def test_there_are_never_more_than_were_asked_for_and_who_waits_gets_one() -> None:
    server, used = Server(), []
    pool, together = server.pool(most=3), threading.Barrier(8)

    def use() -> None:
        together.wait(30)
        for _ in range(20):
            with pool.connection() as line:
                used.append(line.number)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(used) == 160
    assert server.most <= 3


def test_who_waits_in_vain_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_pools, "WAIT_SECONDS", 0.01)
    pool = Server().pool(most=1)
    with pool.connection(), pytest.raises(NoConnection, match="all 1 connections are in use"), pool.connection():
        pass


def fail(pool: Pool[Line]) -> None:
    with pool.connection():
        raise ConnectionResetError


def test_after_an_error_the_connection_and_those_unused_are_closed() -> None:
    server = Server()
    pool = server.pool()
    with pool.connection(), pool.connection():
        pass
    with pytest.raises(ConnectionResetError):
        fail(pool)
    assert (pool.open, server.open) == (0, 0)
    with pool.connection() as line:
        assert line.number == 2


def test_a_connect_that_fails_leaves_its_place_to_others() -> None:
    server = Server()

    def refuse() -> Line:
        raise ConnectionRefusedError

    pool = Pool(refuse, server.alive, 1)
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError), pool.connection():
            pass
    assert pool.open == 0


def test_one_that_lay_unused_is_looked_at_first() -> None:
    server = Server()
    pool = server.pool()
    with pool.connection() as line:
        line.dead = True
    with pool.connection() as line:
        assert line.number == 0, "it was used a moment ago"
    server.time += 3600
    with pool.connection() as line:
        assert line.number == 1
    assert [line.open for line in server.lines] == [False, True]


def test_lookups_with_the_same_settings_share_a_pool_that_ends_with_the_last() -> None:
    server, other = Server(), Server()
    first, second, third = Shared("a", server.pool), Shared("a", server.pool), Shared("b", other.pool)
    assert first.pool is second.pool
    assert first.pool is not third.pool
    with first.pool.connection():
        pass
    first.close()
    first_of_new = Shared("a", server.pool)
    assert first_of_new.pool is second.pool
    assert server.open == 1
    second.close()
    first_of_new.close()
    assert server.open == 0
    assert Shared("a", server.pool).pool is not second.pool


def test_a_connection_that_is_in_use_when_its_pool_is_closed_is_closed_as_it_comes_back() -> None:
    server, pool_closed, going = Server(), threading.Event(), threading.Event()
    pool = server.pool()

    def use() -> None:
        with pool.connection():
            going.set()
            pool_closed.wait(30)

    thread = threading.Thread(target=use)
    thread.start()
    going.wait(30)
    pool.close()
    assert server.open == 1
    pool_closed.set()
    thread.join()
    assert until(lambda: server.open == 0)


def test_all_are_closed_when_the_process_ends() -> None:
    server = Server()
    shared = Shared("at the end", server.pool)
    with shared.pool.connection():
        pass
    of_pools.close_all()
    assert server.open == 0
    shared.close()


def test_a_child_process_has_connections_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    parent = Shared("forked", server.pool)
    monkeypatch.setattr("os.getpid", lambda: -1)
    child = Shared("forked", server.pool)
    assert child.pool is not parent.pool
    child.close()
    monkeypatch.undo()
    parent.close()
