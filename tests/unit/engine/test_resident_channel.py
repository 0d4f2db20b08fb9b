"""Driver and resident task: who does not know the secret gets nowhere, and nothing that is said can hang or flood the other."""

import pickle
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.execute.resident import channel, worker
from penstock.engine.execute.resident.channel import Channel, Closed, Kind, driver_handshake, task_handshake
from penstock.engine.execute.resident.listening import Listener, listener
from penstock.engine.execute.resident.worker import Endpoint, serve
from penstock.errors import BadInput

SECRET = b"s" * 32


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair()
    yield pair
    for end in pair:
        end.close()


def in_thread(function: Any, *args: Any) -> tuple[threading.Thread, list[Any]]:
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(function(*args))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_two_that_know_the_secret_talk(ends: Any) -> None:
    thread, outcome = in_thread(task_handshake, ends[1], SECRET)
    driver = driver_handshake(ends[0], SECRET)
    thread.join()
    driver.send(Kind.JOB, b"work")
    assert outcome[0].receive(1.0) == (Kind.JOB, b"work")


@pytest.mark.parametrize(("driver", "task"), [(SECRET, b"t" * 32), (b"t" * 32, SECRET)])
def test_without_the_secret_neither_side_takes_a_message(ends: Any, driver: bytes, task: bytes) -> None:
    thread, outcome = in_thread(task_handshake, ends[1], task)
    with pytest.raises(Closed):
        driver_handshake(ends[0], driver)
    ends[0].close()
    thread.join()
    assert isinstance(outcome[0], Closed)


def test_a_driver_that_only_repeats_what_the_task_says_is_no_driver(ends: Any) -> None:
    thread, outcome = in_thread(task_handshake, ends[1], SECRET)
    ends[0].sendall(b"n" * 32)
    answered = ends[0].recv(64)
    ends[0].sendall(answered[32:])  # the task's own proof
    thread.join()
    assert isinstance(outcome[0], Closed)


def test_a_stranger_who_says_nothing_is_left_after_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engine.execute.resident.channel.HANDSHAKE", 0.1)
    waiting = Listener(tmp_path)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(waiting.endpoint.address))
        assert waiting.accept() is None
        assert stranger.recv(32)  # the driver's number, and then the end
        assert stranger.recv(1) == b""
    waiting.close()


def test_a_message_that_is_too_long_ends_the_conversation(ends: Any) -> None:
    talk = Channel(ends[0])
    ends[1].sendall(channel._HEADER.pack(Kind.RESULT, channel.MOST + 1))
    with pytest.raises(Closed, match="bytes"):
        talk.receive(1.0)
    with pytest.raises(Closed):
        talk.send(Kind.JOB, b"")


def test_a_message_that_nobody_takes_is_given_up(ends: Any) -> None:
    with pytest.raises(TimeoutError):
        Channel(ends[0]).send(Kind.JOB, b"x" * 10_000_000, 0.05)


def test_a_message_that_does_not_go_on_is_not_waited_for(ends: Any) -> None:
    ends[1].sendall(channel._HEADER.pack(Kind.RESULT, 100) + b"half")
    with pytest.raises(TimeoutError):
        Channel(ends[0]).receive(0.05)


@pytest.mark.parametrize("encrypted", [False, True])
def test_over_tcp_too_and_encrypted_if_spark_is(encrypted: bool) -> None:
    waiting = Listener("127.0.0.1", encrypted)
    thread, outcome = in_thread(lambda: task_handshake(waiting.endpoint.connect(), waiting.endpoint.secret))
    driver = waiting.accept()
    thread.join()
    assert driver
    driver.send(Kind.JOB, b"x" * 1_000_000)
    assert outcome[0].receive(5.0) == (Kind.JOB, b"x" * 1_000_000)
    for each in (driver, outcome[0], waiting):
        each.close()


def test_a_task_talks_to_the_driver_of_its_own_certificate_alone() -> None:
    right, wrong = Listener("127.0.0.1", encrypted=True), Listener("127.0.0.1", encrypted=True)
    led_astray = Endpoint(wrong.endpoint.address, right.endpoint.secret, right.endpoint.certificate)
    thread, outcome = in_thread(led_astray.connect)
    assert wrong.accept() is None
    thread.join()
    assert isinstance(outcome[0], OSError)
    right.close()
    wrong.close()


def test_who_waits_for_a_connection_is_woken_by_the_end(tmp_path: Path) -> None:
    for waiting in (Listener(tmp_path), Listener("127.0.0.1")):
        thread, outcome = in_thread(waiting.accept)
        time.sleep(0.05)
        waiting.close()
        thread.join(10.0)
        assert isinstance(outcome[0], Closed)


def test_the_driver_listens_where_spark_does(tmp_path: Path) -> None:
    on_this_machine = listener(True, tmp_path, {})
    assert str(on_this_machine.endpoint.address).startswith(str(tmp_path))
    encrypted = listener(False, tmp_path, {"spark.driver.host": "127.0.0.1", "spark.network.crypto.enabled": "true"})
    assert encrypted.endpoint.address[0] == "127.0.0.1"
    assert encrypted.endpoint.certificate
    plain = listener(False, tmp_path, {"spark.driver.host": "127.0.0.1"})
    assert plain.endpoint.certificate is None
    for each in (on_this_machine, encrypted, plain):
        each.close()
    assert not list(tmp_path.iterdir())


def test_behind_a_firewall_the_ports_can_be_chosen(tmp_path: Path) -> None:
    free = listener(False, tmp_path, {"spark.driver.host": "127.0.0.1"})
    base = int(free.endpoint.address[1])
    conf = {"spark.driver.host": "127.0.0.1", "spark.penstock.resident.port": str(base)}
    others = [listener(False, tmp_path, conf) for _ in range(2)]
    assert [base < int(each.endpoint.address[1]) < base + 16 for each in others] == [True, True]
    for each in (free, *others):
        each.close()


def served(ends: Any, idle: float = 5.0) -> tuple[Channel, threading.Thread, list[Any]]:
    thread, outcome = in_thread(serve, Channel(ends[1]), idle)
    return Channel(ends[0]), thread, outcome


def test_a_task_without_jobs_gives_its_slot_back(ends: Any) -> None:
    _, thread, outcome = served(ends, idle=0.05)
    thread.join(5.0)
    assert outcome == [None]


def test_a_task_whose_driver_is_gone_ends(ends: Any) -> None:
    driver, thread, outcome = served(ends)
    driver.close()
    thread.join(5.0)
    assert outcome == [None]


def test_what_is_no_job_is_refused_and_the_task_goes_on(ends: Any) -> None:
    driver, thread, outcome = served(ends)
    for _ in range(2):
        driver.send(Kind.JOB, pickle.dumps("no job"))
        kind, text = driver.receive(5.0)
        assert (kind, b"AssertionError" in text) == (Kind.UNEXPECTED, True)
    driver.close()
    thread.join()
    assert outcome == [None]


def test_while_a_job_lasts_there_are_heartbeats(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "HEARTBEAT", 0.02)
    seen = threading.Event()

    def slow(data: bytes) -> Any:
        seen.wait(60)
        raise BadInput("no")

    monkeypatch.setattr(worker.pickle, "loads", slow)
    driver, thread, _ = served(ends)
    driver.send(Kind.JOB, b"")
    kinds = [driver.receive(5.0)[0] for _ in range(3)]
    assert kinds == [Kind.HEARTBEAT] * 3
    seen.set()
    while (found := driver.receive(5.0))[0] == Kind.HEARTBEAT:
        pass
    assert found[0] == Kind.ERROR
    driver.close()
    thread.join()


@pytest.mark.parametrize("error", [MemoryError("none left"), ValueError("odd")])
def test_a_process_without_memory_ends_after_it_has_answered(ends: Any, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(data: bytes) -> Any:
        raise error

    monkeypatch.setattr(worker.pickle, "loads", fails)
    driver, thread, outcome = served(ends)
    driver.send(Kind.JOB, b"")
    assert driver.receive(5.0)[0] == Kind.UNEXPECTED
    driver.close()
    thread.join()
    assert isinstance(outcome[0], worker.WornOut) == isinstance(error, MemoryError)


@pytest.mark.parametrize(("life", "look", "most"), [(4, 100, 1 << 40), (100, 4, 1)], ids=["many jobs", "much memory"])
def test_a_process_ends_after_many_jobs_or_with_much_memory(
    ends: Any, life: int, look: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert worker.own_memory() > 1 << 20
    for name, value in (("LIFE", life), ("LOOK", look), ("MOST_MEMORY", most)):
        monkeypatch.setattr(worker, name, value)
    driver, thread, outcome = served(ends)
    for _ in range(4):
        driver.send(Kind.JOB, b"")
        driver.receive(5.0)
    thread.join()
    assert isinstance(outcome[0], worker.WornOut)
    assert "after 4 jobs" in str(outcome[0])
