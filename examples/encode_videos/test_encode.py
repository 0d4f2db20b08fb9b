"""Round robin finishes out of order, exclusive parts do not: by numbers, with threads, and with a part that fails."""

import runpy
import secrets
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock import Queue
from penstock.queue.message import Received

HERE = Path(__file__).parent
EXAMPLE = runpy.run_path(str(HERE / "encode.py"))


def parts_queue(ordered: bool) -> Queue:
    return Queue.create(f"parts-{secrets.token_hex(4)}", at="memory:", ordered=ordered, tries=100)


def test_round_robin_finishes_out_of_order_and_exclusive_parts_do_not() -> None:
    for ordered, wrong in ((False, 17), (True, 0)):
        finished, _ = EXAMPLE["encode"](parts_queue(ordered))
        assert sorted(finished) == sorted(f"{video}/{n}" for video in EXAMPLE["VIDEOS"] for n in range(EXAMPLE["PARTS"]))
        assert EXAMPLE["out_of_order"](finished) == wrong


@pytest.mark.parametrize("fails", [False, True])
def test_exclusive_parts_stay_in_order_with_threads_and_with_a_part_that_fails(fails: bool) -> None:
    queue, finished, busy = parts_queue(True), list[str](), set[str]()
    for video in EXAMPLE["VIDEOS"]:
        for part in range(EXAMPLE["PARTS"]):
            queue.send(f"{video}/{part}", key=video)
    guard = threading.Lock()

    def encode(message: Received) -> None:
        with guard:
            assert message.key not in busy
            busy.add(str(message.key))
        try:
            if fails and message.text.endswith("/3") and message.attempt < 3:
                raise OSError("the encoder is out of paper")
            with guard:
                finished.append(message.text)
        finally:
            with guard:
                busy.remove(str(message.key))

    queue.work(encode, workers=6, retry="1 ms", until_empty=True)
    assert len(finished) == 48
    assert EXAMPLE["out_of_order"](finished) == 0
    assert queue.dead_letters.peek() == []


def test_the_readme_shows_what_is_printed() -> None:
    done = subprocess.run([sys.executable, str(HERE / "encode.py")], check=True, capture_output=True, text=True)
    assert f"$ python encode.py\n{done.stdout}" in (HERE / "README.md").read_text()
