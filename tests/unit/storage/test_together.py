"""Requests of many threads: each is decided once, those that wait together, and nobody waits for one that left."""

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from penstock.storage import together as module
from penstock.storage.together import Together


class Request:
    def __init__(self) -> None:
        self.done = 0


def in_threads(count: int, act: Callable[[], None]) -> None:
    threads = [threading.Thread(target=act) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_every_request_is_decided_once_and_by_one_thread_at_a_time() -> None:
    groups: list[int] = []
    at_work = threading.Lock()

    def do(requests: list[Request]) -> None:
        assert at_work.acquire(blocking=False)
        groups.append(len(requests))
        for request in requests:
            request.done += 1
        at_work.release()

    together = Together(do)

    def act() -> None:
        for _ in range(300):
            request = Request()
            together.run(request)
            assert request.done == 1

    in_threads(8, act)
    assert sum(groups) == 8 * 300


def test_what_comes_meanwhile_is_done_at_once_by_the_next() -> None:
    begun, go = threading.Event(), threading.Event()
    groups: list[list[str]] = []

    def do(requests: list[str]) -> None:
        groups.append(sorted(requests))
        begun.set()
        go.wait(20)

    together = Together(do)
    first = threading.Thread(target=together.run, args=("first",))
    first.start()
    begun.wait(20)
    others = [threading.Thread(target=together.run, args=(name,)) for name in "abc"]
    for thread in others:
        thread.start()
    wait_for(lambda: len(together._waiting) == 3)
    go.set()
    for thread in (first, *others):
        thread.join(20)
    assert groups == [["first"], ["a", "b", "c"]]


def test_an_error_is_that_of_the_thread_at_work_and_the_next_goes_on() -> None:
    def do(requests: list[str]) -> None:
        if "bad" in requests:
            raise ValueError("bad")

    together = Together(do)
    with pytest.raises(ValueError, match="bad"):
        together.run("bad")
    together.run("good")
    assert not together._busy


class Breaking:
    """A turn that is waited for until the one who waits is interrupted, as a signal does to the main thread."""

    def __init__(self) -> None:
        self.waits, self.now, self.given = threading.Event(), threading.Event(), threading.Event()

    def acquire(self) -> None:
        self.waits.set()
        self.now.wait(20)
        raise KeyboardInterrupt

    def release(self) -> None:
        self.given.set()


@pytest.mark.parametrize("asked", [False, True], ids=["while it waits", "as it is asked to do the work"])
def test_who_is_interrupted_leaves_and_nobody_waits_for_it(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go, turn = threading.Event(), threading.Event(), Breaking()
    seen: list[list[str]] = []

    class Waiting(module._Waiting[str]):
        def __init__(self, request: str) -> None:
            super().__init__(request)
            if request == "interrupted":
                self.turn = turn  # type: ignore[assignment]

    def do(requests: list[str]) -> None:
        seen.append(requests)
        begun.set()
        go.wait(20)

    def run(name: str) -> None:
        with suppress(KeyboardInterrupt):
            together.run(name)

    monkeypatch.setattr(module, "_Waiting", Waiting)
    together = Together(do)
    threads = [threading.Thread(target=run, args=(name,)) for name in ("first", "interrupted", "last")]
    threads[0].start()
    begun.wait(20)
    threads[1].start()
    turn.waits.wait(20)
    threads[2].start()
    wait_for(lambda: len(together._waiting) == 2)
    if asked:
        go.set()
        assert turn.given.wait(20)  # the first one is done, and it is the turn of the one that is interrupted
    turn.now.set()
    threads[1].join(20)
    go.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert seen == [["first"], ["last"]]
    assert not together._busy


def wait_for(condition: Callable[[], bool]) -> None:
    event = threading.Event()
    for _ in range(2_000):
        if condition():
            return
        event.wait(0.01)
    raise AssertionError("it did not come to that")
