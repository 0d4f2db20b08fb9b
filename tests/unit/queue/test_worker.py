"""The worker loop: threads, poison messages, lost leases, stopping."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue, Reject
from penstock.errors import BadInput, DiskFull
from penstock.log.groups.leases import ManualClock
from penstock.queue.client.lease_keeper import LeaseKeeper
from penstock.queue.client.worker import Worked
from penstock.queue.message import Received
from penstock.queue.port import Consumer, Delivery, Settlement
from unit.queue.conftest import Make
from waiting import until

QUICK = {"retry": "1 ms", "until_empty": True}


def test_every_message_is_handled_and_acked(emails: Queue) -> None:
    emails.send_many(str(n) for n in range(200))
    seen: Counter[str] = Counter()
    assert emails.work(lambda message: seen.update([message.text]), workers=3, **QUICK) == Worked(200, 0, 0, 0)
    assert seen == {str(n): 1 for n in range(200)}
    state = emails.state()
    assert (state.ready, state.lent, state.counts["acked"]) == (0, 0, 200)


def test_a_poison_message_is_tried_as_often_as_the_queue_says_and_the_others_pass(
    emails: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    emails.send_many(["good", "poison", "good", "good"])
    tries: list[int] = []

    def handle(message: Received) -> None:
        if message.text == "poison":
            tries.append(message.attempt)
            raise ValueError("no such address: nobody@")

    assert emails.work(handle, workers=2, **QUICK) == Worked(3, 5, 0, 0)
    assert tries == [1, 2, 3, 4, 5]
    [letter] = emails.dead_letters.peek()
    assert letter.dead
    first, *lines = letter.dead.reason.splitlines()
    assert first == "ValueError: no such address: nobody@"
    assert 'raise ValueError("no such address: nobody@")' in lines[-1]
    assert "in handle" in lines[-2]
    assert letter.dead.count == 5
    assert [record.getMessage() for record in caplog.records][-1].endswith("try 5 of 5: ValueError('no such address: nobody@')")


def test_the_rest_after_a_failure_doubles(emails: Queue) -> None:
    emails.send("x")
    settled: list[Settlement] = []
    port = emails.port
    settle = port.settle

    def note(settlements: list[Settlement]) -> object:
        settled.extend(s for s in settlements if s.fate == "nack")
        return settle(settlements)

    port.settle = note  # type: ignore[assignment, method-assign]

    def fail(message: Received) -> None:
        raise OSError

    emails.work(fail, workers=1, **QUICK)
    assert [s.delay and s.delay.total_seconds() for s in settled] == [0.001, 0.002, 0.004, 0.008, 0.016]


def test_reject_is_not_tried_again(emails: Queue) -> None:
    emails.send("x")

    def handle(message: Received) -> None:
        raise Reject("it is from last year")

    assert emails.work(handle, **QUICK) == Worked(0, 0, 1, 0)
    [letter] = emails.dead_letters.peek()
    assert letter.dead
    assert (letter.dead.reason, letter.dead.count) == ("it is from last year", 1)


def test_a_handler_may_settle_its_message_itself(emails: Queue) -> None:
    emails.send_many(["ack", "nack", "reject", "extend"])

    def handle(message: Received) -> None:
        if message.text == "nack" and message.attempt == 2:
            return
        if message.text == "nack":
            message.nack("1 ms")
        elif message.text == "reject":
            message.reject("so")
        elif message.text == "extend":
            message.extend("1 hour")
        else:
            message.ack()
            raise ValueError("after that it does not matter")

    assert emails.work(handle, **QUICK) == Worked(3, 1, 1, 0)


def test_leases_are_kept_while_the_handler_runs(emails: Queue, leases: ManualClock) -> None:
    emails.send("slow")
    begun, over = threading.Event(), threading.Event()

    def handle(message: Received) -> None:
        begun.set()
        assert over.wait(120)

    worker = emails.worker(handle, workers=1, lease="60 ms", until_empty=True)
    running = threading.Thread(target=worker.run)
    running.start()
    assert begun.wait(60)
    for _ in range(5):
        leases.advance(0.04)  # the next heartbeat makes it whole again
        assert until(lambda: [held.seconds == 0.06 for held in emails.state().holders] == [True])
    with emails.consumer() as other:
        assert other.receive() == []
    over.set()
    running.join(60)
    assert emails.state().counts["acked"] == 1
    assert "lent again" not in emails.state().counts


def test_a_lease_that_was_lost_is_counted_and_the_message_is_done_by_somebody_else(emails: Queue, leases: ManualClock) -> None:
    emails.send("x")
    with emails.consumer() as other:

        def handle(message: Received) -> None:
            leases.advance(60)  # as if this process had been stopped for a minute
            [again] = other.receive()
            again.ack()

        assert emails.work(handle, workers=1, prefetch=1, until_empty=True) == Worked(0, 0, 0, 1)
    assert emails.state().counts["acked"] == 1


def test_stop_finishes_what_was_begun_and_gives_back_the_rest_untried(emails: Queue) -> None:
    emails.send_many(str(n) for n in range(20))
    begun, over, seen = threading.Barrier(3), threading.Event(), list[str]()

    def handle(message: Received) -> None:
        begun.wait(60)
        assert over.wait(60)
        seen.append(message.text)

    worker = emails.worker(handle, workers=2, prefetch=10)
    done: list[Worked] = []
    running = threading.Thread(target=lambda: done.append(worker.run()))
    running.start()
    begun.wait(60)
    worker.stop()
    over.set()
    running.join(60)
    assert done == [Worked(2, 0, 0, 0)]
    state = emails.state()
    assert (state.ready, state.lent) == (18, 0)
    with emails.consumer(prefetch=20) as consumer:
        assert {message.attempt for message in consumer.receive(20)} == {1}


def test_a_handler_may_stop_its_worker(emails: Queue) -> None:
    emails.send_many(["a", "b", "c"])
    seen: list[str] = []

    def handle(message: Received) -> None:
        seen.append(message.text)
        worker.stop()

    worker = emails.worker(handle, workers=1, prefetch=1)
    assert worker.run() == Worked(1, 0, 0, 0)
    assert seen == ["a"]


def test_until_empty_waits_for_retries_and_for_what_others_hold(emails: Queue) -> None:
    emails.send_many(["theirs", "mine"])
    emails.send("later", delay="50 ms")
    seen: list[tuple[str, int]] = []
    with emails.consumer() as other:
        [theirs] = other.receive()

        def handle(message: Received) -> None:
            seen.append((message.text, message.attempt))
            if message.text == "later" and message.attempt == 1:
                theirs.nack()
                raise ValueError("again")

        emails.work(handle, workers=1, **QUICK)
    assert sorted(seen) == [("later", 1), ("later", 2), ("mine", 1), ("theirs", 2)]


def test_what_is_not_a_failure_of_the_message_ends_the_worker(emails: Queue) -> None:
    emails.send("x")

    def handle(message: Received) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        emails.work(handle, until_empty=True)
    assert emails.peek()[0].attempt == 0


def test_a_queue_that_fails_ends_the_worker_with_its_error(emails: Queue) -> None:
    emails.send("x")

    def refuse(settlements: list[Settlement]) -> None:
        raise DiskFull("the disk is full")

    emails.port.settle = refuse  # type: ignore[assignment, method-assign]
    with pytest.raises(DiskFull):
        emails.work(lambda message: None)


def test_what_cannot_work_is_told(emails: Queue) -> None:
    async def handle(message: Received) -> None: ...

    with pytest.raises(BadInput, match="use await"):
        emails.work(handle)
    with pytest.raises(BadInput, match="workers cannot be 0"):
        emails.work(lambda message: None, workers=0)


def test_ordered_parts_are_worked_one_after_the_other(make: Make) -> None:
    videos = make("videos", ordered=True)
    for n in range(10):
        for key in "abc":
            videos.send(f"{key}{n}", key=key)
    seen: list[str] = []
    videos.work(lambda message: seen.append(message.text), workers=4, until_empty=True)
    for key in "abc":
        assert [text for text in seen if text[0] == key] == [f"{key}{n}" for n in range(10)]


PROGRAM = """
from waiting import until
from penstock import Queue
emails = Queue.open("emails")
emails.send_many(str(n) for n in range(6))

def handle(message):
    print("begun", message.text, flush=True)
    assert until(lambda: worker._stopped)
    print("done", message.text, flush=True)

worker = emails.worker(handle, workers=1, prefetch=4)
print(worker.run(), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_program_when_what_was_begun_is_finished(tmp_path: Path, number: int) -> None:
    env = {**os.environ, "PENSTOCK_HOME": str(tmp_path / "home"), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        assert program.stdout.readline() == "begun 0\n"
        program.send_signal(number)
        assert program.stdout.read() == "done 0\nWorked(done=1, failed=0, rejected=0, lost=0)\n"
        assert program.wait(60) == 0
    emails = Queue.open("emails", home=tmp_path / "home")
    assert [(message.text, message.attempt) for message in emails.peek()] == [(str(n), 0) for n in range(1, 6)]
    assert emails.state().lent == 0


IMPATIENT = """
import threading
from waiting import until
from penstock import Queue
emails = Queue.open("emails")
emails.send_many(["a", "b"])

def handle(message):
    print("begun", flush=True)
    assert until(lambda: worker._asked)
    print("asked", flush=True)
    threading.Event().wait()

worker = emails.worker(handle, workers=1, lease="200 ms")
worker.run()
"""


def test_a_second_signal_ends_it_at_once_and_what_was_begun_comes_back(tmp_path: Path) -> None:
    env = {**os.environ, "PENSTOCK_HOME": str(tmp_path / "home"), "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", IMPATIENT], env=env, **pipes) as program:
        assert program.stdout
        assert program.stderr
        try:
            assert program.stdout.readline() == "begun\n"
            program.send_signal(signal.SIGINT)
            assert program.stdout.readline() == "asked\n"
            program.send_signal(signal.SIGINT)
            assert "KeyboardInterrupt" in program.stderr.read()
        finally:
            program.kill()
    emails = Queue.open("emails", home=tmp_path / "home")
    assert until(lambda: emails.state().ready == 2)
    with emails.consumer() as consumer:
        assert [(message.text, message.attempt) for message in consumer.receive(2)] == [("a", 2), ("b", 1)]


def test_a_second_signal_while_messages_are_fetched_waits_for_no_handler(emails: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()
    receive = emails.port.receive

    def handle(message: Received) -> None:
        begun.set()
        go.wait(60)

    def interrupted(consumer: Consumer, most: int = 1, auto: bool = False) -> Sequence[Delivery]:
        if begun.is_set():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return receive(consumer, most, auto)

    emails.send("a")
    monkeypatch.setattr(emails.port, "receive", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            emails.work(handle, workers=1, prefetch=2)
        assert not go.is_set()
    finally:
        go.set()


def test_a_second_signal_cuts_nothing_short_that_holds_a_lock(emails: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    go, whole = threading.Event(), threading.Event()
    settle = LeaseKeeper.settle

    def interrupted(keeper: LeaseKeeper, settlements: Sequence[Settlement]) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            whole.set()
        settle(keeper, settlements)

    def handle(message: Received) -> None:
        worker.stop()
        go.wait(60)

    emails.send("a")
    monkeypatch.setattr(LeaseKeeper, "settle", interrupted)
    worker = emails.worker(handle, workers=1)
    try:
        with pytest.raises(KeyboardInterrupt):
            worker.run()
        assert whole.is_set()
        assert not go.is_set()
    finally:
        go.set()


def test_a_worker_runs_once(emails: Queue) -> None:
    worker = emails.worker(lambda message: None, until_empty=True)
    worker.run()
    with pytest.raises(BadInput, match="runs once"):
        worker.run()


def test_a_worker_ends_with_whatever_keeps_it_from_settling(emails: Queue) -> None:
    emails.send_many(["a", "b"])

    def broken(settlements: Sequence[Settlement]) -> object:
        raise RuntimeError("the driver of the broker failed")

    emails.port.settle = broken  # type: ignore[assignment, method-assign]
    with pytest.raises(RuntimeError, match="the driver of the broker failed"):
        emails.work(lambda message: None, workers=1, **QUICK)
