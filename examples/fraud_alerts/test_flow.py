"""Every alert reaches its receiver once by its key, also when the flow is killed and the receivers are away in between."""

import asyncio
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from penstock.cli.main import run
from penstock.sinks.actions.http.signing import verified
from penstock.testing.receiver import LOST, Receiver, Reply

HERE = Path(__file__).parent
SECRET = "for the example only"
KILLS = ("action.done@3", "action.noted@1", "after_decide@2")
# Runs the flow as `penstock run flow.py --drain` does, without Spark: a few rows an epoch, so that there is something to kill.
CHILD = """
import sys, threading
from penstock.cli.flow.load import load_flows
from penstock.engine.execute.placement import InProcess
from penstock.engine.run import loop
from penstock.engine.run.runtime import Runtime
from penstock.storage.home import find_home

class SparkFree(Runtime):
    tasks = 2
    place = lambda self, rows: InProcess()
    _sql = lambda self: None

runtime = SparkFree(find_home())
driver = runtime.driver(runtime.plan(load_flows((sys.argv[1],))[0]))
driver.start()
loop.drain(driver, threading.Event(), lambda report: None, 15)
driver.stop()
"""


class Mailbox:
    """A mail server on this machine; mails under one Message-ID are one."""

    def __init__(self) -> None:
        self.mails: dict[str, str] = {}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.controller = Controller(self, hostname="127.0.0.1", port=self.port)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        headers = dict(line.split(": ", 1) for line in envelope.content.decode().split("\r\n\r\n")[0].split("\r\n"))
        self.mails[headers["Message-ID"]] = headers["Subject"]
        await asyncio.sleep(0)
        return "250 OK"


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    box = Mailbox()
    box.controller.start()
    yield box
    box.controller.stop()


@pytest.fixture
def settings(tmp_path: Path, hook: Receiver, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found = {"PENSTOCK_HOME": str(tmp_path), "HOOK_SECRET": SECRET}
    found |= {"HOOK_URL": f"{hook.url}fraud", "SMTP_URL": f"smtp://127.0.0.1:{mailbox.port}"}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


def payments() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / "payments.jsonl").read_text().splitlines()]


def expected() -> tuple[list[str], list[str]]:
    abroad = [p["payment_id"] for p in payments() if p["amount"] > 500 and p["country"] != p["home"]]
    minutes = Counter((p["card"], p["at"][:16]) for p in payments())
    return sorted(abroad), sorted(f"card {card} was used {n} times in a minute" for (card, _), n in minutes.items() if n >= 4)


def found(hook: Receiver, mailbox: Mailbox) -> tuple[list[str], list[str]]:
    return sorted(message.json()["payment"] for message in hook.messages.values()), sorted(mailbox.mails.values())


def test_alerts_are_sent_and_signed(settings: dict[str, str], hook: Receiver, mailbox: Mailbox) -> None:
    with runpy.run_path(str(HERE / "flow.py"))["flow"].test() as t:
        t.send("payments", *payments())
        t.end()
        t.stop()
    assert found(hook, mailbox) == expected()
    (first, *_) = hook.requests
    header = first.headers["Penstock-Signature"]
    at = int(header.partition(",")[0].removeprefix("t="))
    assert verified(SECRET, first.body, header, at * 1_000_000)


def test_killed_again_and_again_every_alert_is_there_once(settings: dict[str, str], hook: Receiver, mailbox: Mailbox) -> None:
    assert run(["topic", "create", "payments"]) == 0
    assert run(["topic", "produce", "payments", str(HERE / "payments.jsonl")]) == 0
    hook.answer(LOST, Reply(500), Reply(503, (("Retry-After", "0"),)))
    for fail in (*KILLS, *[""] * 10):
        ended = subprocess.run(
            [sys.executable, "-c", CHILD, str(HERE / "flow.py")],
            env={**os.environ, **settings, "PENSTOCK_FAIL": fail},
            start_new_session=True,
            check=False,
        )
        assert ended.returncode in (0, -signal.SIGKILL)
        if not fail and found(hook, mailbox) == expected():
            break
    assert found(hook, mailbox) == expected()
    assert len({request.body: request.key for request in hook.requests}) == len(hook.messages), "one alert under two keys"
