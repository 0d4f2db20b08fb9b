"""Group commit: each request is decided once, those that wait go together, and nobody waits for one that left."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from penstock.errors import BadInput, StorageError
from penstock.storage import group_commit as module
from penstock.storage.group_commit import GroupCommit, Pending, Refused
from waiting import until

Group = Sequence[Pending[str, str]]
INTERRUPTED = "the commit was interrupted"


def in_threads(count: int, act: Callable[[], None]) -> None:
    threads = [threading.Thread(target=act) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def answer(group: Group) -> None:
    for one in group:
        one.result = one.request.upper()


def requests(group: Group) -> list[str]:
    return [one.request for one in group]


class Gate:
    """A commit whose first group waits, so that others stand behind it; afterwards it does what it is given."""

    def __init__(self, then: Callable[[Group], None] = answer) -> None:
        self.begun, self.go, self.then = threading.Event(), threading.Event(), then
        self.groups: list[list[str]] = []

    def __call__(self, group: Group) -> None:
        self.groups.append(requests(group))
        if len(self.groups) == 1:
            self.begun.set()
            assert self.go.wait(20)
            answer(group)
        else:
            self.then(group)


def behind(gate: Gate, commits: GroupCommit[str, str], *names: str) -> list["Future[str]"]:
    """Requests of these names, which all wait in this order while the gate is closed; of each its size is the length."""
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(commits.run, "first")
        assert gate.begun.wait(20)
        others = list[Future[str]]()
        for number, name in enumerate(names, 1):
            others.append(pool.submit(commits.run, name, len(name)))
            assert until(lambda number=number: commits.waiting == number, 20)  # type: ignore[misc]
        gate.go.set()
        assert first.result(20) == "FIRST"
        return others


def test_every_request_is_decided_once_and_by_one_thread_at_a_time() -> None:
    groups: list[int] = []
    at_work = threading.Lock()

    def commit(group: Sequence[Pending[list[int], int]]) -> None:
        assert at_work.acquire(blocking=False)
        groups.append(len(group))
        for one in group:
            one.request[0] += 1
            one.result = one.request[0]
        at_work.release()

    commits = GroupCommit(commit, INTERRUPTED)

    def act() -> None:
        for _ in range(300):
            assert commits.run([0]) == 1

    in_threads(8, act)
    assert sum(groups) == 8 * 300


def test_what_comes_meanwhile_is_committed_at_once_by_the_next() -> None:
    gate = Gate()
    others = behind(gate, GroupCommit(gate, INTERRUPTED), "a", "b", "c")
    assert [one.result() for one in others] == ["A", "B", "C"]
    assert gate.groups == [["first"], ["a", "b", "c"]]


def test_a_group_is_no_larger_than_it_may_be() -> None:
    gate = Gate()
    others = behind(gate, GroupCommit(gate, INTERRUPTED, max_size=4), "aa", "bb", "c", "dddddd", "e")
    assert [one.result() for one in others] == ["AA", "BB", "C", "DDDDDD", "E"]
    assert gate.groups == [["first"], ["aa", "bb"], ["c"], ["dddddd"], ["e"]]


def test_one_that_is_refused_is_told_alone_and_the_others_are_committed() -> None:
    def refuse(group: Group) -> None:
        if "bad" in requests(group):
            raise Refused(BadInput("bad"))
        answer(group)

    gate = Gate(refuse)
    a, bad, c = behind(gate, GroupCommit(gate, INTERRUPTED), "a", "bad", "c")
    assert (a.result(), c.result()) == ("A", "C")
    assert isinstance(bad.exception(), BadInput)
    assert gate.groups == [["first"], ["a", "bad", "c"], ["a"], ["bad"], ["c"]]


def test_a_failure_fails_the_whole_group_and_each_keeps_an_error_of_its_own() -> None:
    def fail(group: Group) -> None:
        answer(group)
        group[1].error = BadInput("mine")
        raise StorageError("the disk is gone")

    gate = Gate(fail)
    others = behind(gate, GroupCommit(gate, INTERRUPTED), "a", "b", "c")
    assert [type(one.exception()) for one in others] == [StorageError, BadInput, StorageError]
    assert gate.groups == [["first"], ["a", "b", "c"]]


def test_an_interrupt_is_raised_in_the_thread_that_leads_and_told_to_the_others() -> None:
    def interrupt(group: Group) -> None:
        raise KeyboardInterrupt

    gate = Gate(interrupt)
    errors = [one.exception() for one in behind(gate, GroupCommit(gate, INTERRUPTED), "a", "b")]
    assert sorted(type(error).__name__ for error in errors) == ["KeyboardInterrupt", "StorageError"]
    assert INTERRUPTED in str(errors)


def test_an_interrupt_while_each_is_committed_alone_leaves_nobody_without_an_answer() -> None:
    def commit(group: Group) -> None:
        if len(group) > 1:
            raise Refused(BadInput("one of them"))
        if requests(group) == ["b"]:
            raise KeyboardInterrupt
        answer(group)

    gate = Gate(commit)
    a, b, c = behind(gate, GroupCommit(gate, INTERRUPTED), "a", "b", "c")
    assert isinstance(a.exception(), KeyboardInterrupt)  # it leads
    assert [type(one.exception()) for one in (b, c)] == [StorageError, StorageError]
    assert gate.groups == [["first"], ["a", "b", "c"], ["a"], ["b"]]


def test_after_an_error_the_next_goes_on() -> None:
    def commit(group: Group) -> None:
        if "bad" in requests(group):
            raise ValueError("bad")
        answer(group)

    commits = GroupCommit(commit, INTERRUPTED)
    with pytest.raises(ValueError, match="bad"):
        commits.run("bad")
    assert commits.run("good") == "GOOD"
    assert not commits._busy


def test_a_request_that_must_be_tried_once_shares_its_commit_with_no_other() -> None:
    def refuse(group: Group) -> None:
        raise Refused(BadInput("bad"))

    with pytest.raises(BadInput, match="bad"):
        GroupCommit(refuse, INTERRUPTED).run_alone("x")
    assert GroupCommit(answer, INTERRUPTED).run_alone("x") == "X"


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


@pytest.mark.parametrize("asked", [False, True], ids=["while it waits", "as it is asked to lead"])
def test_who_is_interrupted_leaves_and_nobody_waits_for_it(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go, turn = threading.Event(), threading.Event(), Breaking()
    seen: list[list[str]] = []

    class Interrupted(Pending[str, str]):
        def __init__(self, request: str, size: int = 0) -> None:
            super().__init__(request, size)
            if request == "interrupted":
                self.turn = turn  # type: ignore[assignment]

    def commit(group: Group) -> None:
        seen.append(requests(group))
        answer(group)
        begun.set()
        go.wait(20)

    def run(name: str) -> None:
        with suppress(KeyboardInterrupt):
            commits.run(name)

    monkeypatch.setattr(module, "Pending", Interrupted)
    commits = GroupCommit(commit, INTERRUPTED)
    threads = [threading.Thread(target=run, args=(name,)) for name in ("first", "interrupted", "last")]
    threads[0].start()
    begun.wait(20)
    threads[1].start()
    turn.waits.wait(20)
    threads[2].start()
    assert until(lambda: commits.waiting == 2, 20)
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
    assert not commits._busy
