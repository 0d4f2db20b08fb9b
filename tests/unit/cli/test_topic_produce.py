"""penstock topic produce as a process of its own: slow pipes, sockets, signals, terminals and large files."""

import json
import os
import pty
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.cli.topic.lines import Batching, Splitter, lines_from_socket, lines_of
from penstock.cli.topic.produce import listening_socket
from penstock.errors import BadInput, NotFound
from penstock.log.consumer import records
from penstock.log.open import open_log
from waiting import until

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()", "topic"]

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the processes inherit; compiled modules are kept, so that only the first one starts slowly."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("compiled"))}


@pytest.fixture
def start(home: Path, environment: dict[str, str]) -> Iterator[Start]:
    """Starts the command in the home; whatever still runs at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*words: str, **streams: object) -> "subprocess.Popen[bytes]":
        settings = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        process = subprocess.Popen([*COMMAND, *words], env=environment | {"PENSTOCK_HOME": str(home)}, **settings)  # type: ignore[call-overload]
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()


def values(home: Path, topic: str) -> list[int]:
    try:
        return [json.loads(bytes(r.value))["n"] for r in records(open_log(home).topic(topic))]
    except NotFound:
        return []


def line(n: int) -> bytes:
    return b'{"n": %d}\n' % n


def test_rows_of_a_slow_pipe_are_in_the_log_while_it_is_still_open(start: Start, home: Path) -> None:
    process = start("produce", "t")
    assert process.stdin
    for n in range(3):
        process.stdin.write(line(n))
        process.stdin.flush()
        assert until(lambda n=n: values(home, "t") == list(range(n + 1)))  # type: ignore[misc]
    process.stdin.close()
    assert process.wait(120) == 0


def test_an_interrupt_writes_what_was_accepted_and_says_how_much(start: Start, home: Path) -> None:
    process = start("produce", "t")
    assert process.stdin
    assert process.stderr
    process.stdin.write(line(0) + line(1) + b'{"n": ')
    process.stdin.flush()
    assert until(lambda: values(home, "t") == [0, 1])
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert process.stderr.read().decode() == "interrupted: produced 2 rows to t (1 partition) · 0 rejected\n"
    assert values(home, "t") == [0, 1]


def listening(process: "subprocess.Popen[bytes]") -> tuple[str, int]:
    assert process.stderr
    found = re.fullmatch(r"listening on (.*):(\d+)\n", process.stderr.readline().decode())
    assert found
    return found[1], int(found[2])


def test_a_socket_takes_lines_of_several_connections_at_once_until_interrupted(start: Start, home: Path) -> None:
    process = start("produce", "t", "--listen", "127.0.0.1:0")
    address = listening(process)
    with socket.create_connection(address) as a, socket.create_connection(address) as b:
        a.sendall(line(1) + b'{"n"')
        b.sendall(line(2))
        assert until(lambda: sorted(values(home, "t")) == [1, 2])
        a.sendall(b": 3}\nnonsense\n")
        b.sendall(b'{"n": 4}')
        b.shutdown(socket.SHUT_WR)
        assert until(lambda: sorted(values(home, "t")) == [1, 2, 3, 4])
        peer = "{}:{}".format(*a.getsockname())
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
    assert process.stderr
    told = process.stderr.read().decode().splitlines()
    assert told[0].startswith(f"{peer} line 3: not JSON")
    assert told[1:] == ["interrupted: produced 4 rows to t (1 partition) · 1 rejected"]


def test_a_socket_ends_by_itself_when_enough_rows_came(start: Start, home: Path) -> None:
    process = start("produce", "t", "--listen", "localhost:0", "--max", "3")
    with socket.create_connection(listening(process)) as connection:
        connection.sendall(b"".join(line(n) for n in range(10)))
        assert process.wait(120) == 0
    assert values(home, "t") == [0, 1, 2]


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("0.0.0.0:0", "other machines"),
        ("[::]:0", "other machines"),
        ("nowhere", "HOST:PORT"),
        ("127.0.0.1:x", "HOST:PORT"),
        ("127.0.0.1:99999", "HOST:PORT"),
    ],
)
def test_only_this_machine_may_connect_unless_it_is_said_otherwise(address: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        listening_socket(address, anywhere=False)


def test_anywhere_listens_anywhere_and_a_port_in_use_is_told() -> None:
    with listening_socket("0.0.0.0:0", anywhere=True) as server:
        assert server.getsockname()[0] == "0.0.0.0"
    with listening_socket(":0", anywhere=False) as server:
        assert server.getsockname()[0] == "127.0.0.1"
        with pytest.raises(BadInput, match="in use"):
            listening_socket(f"127.0.0.1:{server.getsockname()[1]}", anywhere=False)


def test_a_terminal_sees_a_bar_and_a_pipe_does_not(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"".join(line(n) for n in range(2000)))
    ours, theirs = pty.openpty()
    process = start("produce", "t", str(file), "--batch", "100", stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not data:
            break
        shown += data
    os.close(ours)
    assert process.wait(120) == 0
    assert b"\xe2\x94\x81" in shown  # the bar
    assert b"produced 2,000 rows to t (1 partition)" in shown
    quiet = start("produce", "t", str(file))
    assert quiet.communicate(timeout=120)[1].decode() == "produced 2,000 rows to t (1 partition) · 0 rejected\n"


def peak(process: "subprocess.Popen[bytes]", code: int = 0) -> int:
    """Kilobytes of memory that the process used at most; code: how it ends."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == code
    return usage.ru_maxrss


def test_memory_stays_flat_when_the_file_is_large_and_when_a_line_has_no_end(start: Start, tmp_path: Path, home: Path) -> None:
    small, large, endless = tmp_path / "small", tmp_path / "large", tmp_path / "endless"
    block = b"".join(b'{"n": %d, "text": "%s"}\n' % (n, b"x" * 200) for n in range(5000))
    small.write_bytes(block)
    large.write_bytes(block * 90)
    endless.write_bytes(b"x" * len(block) * 90)
    assert large.stat().st_size > 100_000_000
    base = peak(start("produce", "t", str(small)))
    assert peak(start("produce", "t", str(large))) < base + 80_000
    assert peak(start("produce", "t", str(endless)), code=1) < base + 80_000
    assert open_log(home).topic("t").ends()[0].next == 5000 * 91


def test_a_disk_that_takes_no_more_is_told_with_what_is_in_the_log(start: Start, tmp_path: Path, home: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"".join(b'{"n": %d, "text": "%s"}\n' % (n, b"x" * 200) for n in range(50_000)))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, 4_000_000))

    process = start("produce", "t", str(file), preexec_fn=limit)
    told = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 1
    found = re.search(r"failed; ([\d,]+) rows are known to be in the log", told)
    assert found
    assert int(found[1].replace(",", "")) <= open_log(home).topic("t").ends()[0].next < 50_000
    assert values(home, "t") == list(range(open_log(home).topic("t").ends()[0].next))


def test_following_prints_rows_as_they_come_until_interrupted(start: Start, home: Path) -> None:
    assert start("produce", "t").communicate(line(0), timeout=120)
    reader = start("consume", "t", "--follow")
    assert reader.stdout
    assert json.loads(reader.stdout.readline()) == {"n": 0}
    assert start("produce", "t").communicate(line(1), timeout=120)
    assert json.loads(reader.stdout.readline()) == {"n": 1}
    reader.send_signal(signal.SIGINT)
    assert reader.wait(120) == 0


def test_a_reader_that_leaves_ends_it_quietly(start: Start) -> None:
    start("produce", "t").communicate(b"".join(line(n) for n in range(50_000)), timeout=120)
    reader = start("consume", "t")
    assert reader.stdout
    assert reader.stderr
    reader.stdout.readline()
    reader.stdout.close()
    assert reader.wait(120) == 0
    assert reader.stderr.read() == b""


def test_lines_of_a_connection_that_breaks_off_are_kept_and_places_name_it() -> None:
    got: list[tuple[bytes, object]] = []
    with listening_socket(":0", anywhere=False) as server:
        address = server.getsockname()
        calm, rude = socket.create_connection(address), socket.create_connection(address)
        calm.sendall(b"one\ntwo")
        calm.close()
        rude.sendall(b"three\n")
        for batch in lines_from_socket(server, Batching(10, 100, lambda: len(got) == 3)):
            got.extend(zip(batch.lines, batch.places, strict=True))
            if b"three" in batch.lines:
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                rude.close()  # a reset, not an end
    assert sorted(line for line, _ in got) == [b"one", b"three", b"two"]
    assert {re.sub(r":\d+", "", str(where)) for _, where in got} == {"127.0.0.1 line 1", "127.0.0.1 line 2"}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_the_same_however_they_are_cut(size: int) -> None:
    text = b'{"a":1}\n\n\r\n{"b":2}\r\nlong' + b"x" * 40 + b"\nlast"
    splitter, lines, places = Splitter(limit=20), list[bytes](), list[object]()
    for at in range(0, len(text), size):
        for found, where in [splitter.feed(text[at : at + size])]:
            lines += found
            places += where
    found, where = splitter.end()
    lines, places = lines + found, places + where
    assert places == [1, 4, 5, 6]
    assert [lines[0], lines[1], lines[3]] == [b'{"a":1}', b'{"b":2}\r', b"last"]
    assert len(lines[2]) > 20
    assert lines[2].startswith(b"longx")


def test_batches_have_no_more_lines_than_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(b"a\n" * 25)
    with file.open("rb") as stream:
        batches = list(lines_of(stream, Batching(10, 100, lambda: False)))
    assert [len(b.lines) for b in batches] == [10, 10, 5]
    assert [b.places[0] for b in batches] == [1, 11, 21]
    assert sum(b.size for b in batches) == 50


def test_a_process_with_many_open_files_can_still_read_lines(tmp_path: Path) -> None:
    with ExitStack() as stack:
        for _ in range(1_100):
            stack.enter_context(open(os.devnull, "rb"))
        path = tmp_path / "lines"
        path.write_bytes(b"one\ntwo\n")
        with path.open("rb") as file:
            assert file.fileno() > 1_024
            batches = list(lines_of(file, Batching(10, 1_000, lambda: False)))
    assert [line for batch in batches for line in batch.lines] == [b"one", b"two"]
