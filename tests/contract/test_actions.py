"""Every action passes the same suite; and the outbox that they share, that of sinks."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.log.memory import MemoryLog
from penstock.sinks.actions.call import Call, call
from penstock.sinks.actions.command import command
from penstock.sinks.actions.http.webhook import Webhook
from penstock.sinks.actions.mail import email
from penstock.sinks.actions.outbox.sending import Sending
from penstock.sinks.actions.processes import Command
from penstock.sinks.actions.sink import ActionSink, outbox_topic
from penstock.sinks.actions.smtp import Mail
from penstock.sinks.actions.webhook import webhook
from penstock.sinks.port import SinkContext, SinkSpec
from penstock.sinks.topic import POINTS
from penstock.storage.port import Storage
from penstock.testing.contracts.action import ActionContract, Received
from penstock.testing.contracts.sink import Row, SinkContract
from penstock.testing.receiver import Receiver
from smtp_server import MailServer


class TestCall(ActionContract):
    @contextmanager
    def receiver(self, directory: Path) -> Iterator[list[Received]]:
        yield []

    def action(self, receiver: list[Received]) -> Call:
        return call(lambda row, key: receiver.append((key, row["id"]))).action()

    def received(self, receiver: list[Received]) -> list[Received]:
        return receiver


class TestWebhook(ActionContract):
    def receiver(self, directory: Path) -> Receiver:
        return Receiver()

    def action(self, receiver: Receiver) -> Webhook:
        return webhook(receiver.url, hosts=["127.0.0.1"]).action()

    def received(self, receiver: Receiver) -> list[Received]:
        return [(request.key, request.json()["id"]) for request in receiver.requests]


class TestEmail(ActionContract):
    def receiver(self, directory: Path) -> MailServer:
        return MailServer()

    def action(self, receiver: MailServer) -> Mail:
        return email(receiver.url, sender="a@shop.example", to="b@shop.example", subject="{id}", body="{text}").action()

    def received(self, receiver: MailServer) -> list[Received]:
        return [(str(mail["Message-ID"]), int(mail["Subject"])) for mail in receiver.mails]


class TestCommand(ActionContract):
    @contextmanager
    def receiver(self, directory: Path) -> Iterator[Path]:
        yield directory / "received"

    def action(self, receiver: Path) -> Command:
        program = 'read row; echo "$PENSTOCK_IDEMPOTENCY_KEY $row" >> "$0"'
        return command(["sh", "-c", program, str(receiver)]).action()

    def received(self, receiver: Path) -> list[Received]:
        lines = [line.split(" ", 1) for line in receiver.read_text().splitlines()]
        return [(key, json.loads(row)["id"]) for key, row in lines]


class TestOutbox(SinkContract):
    """Every epoch once in the outbox, whatever the receiver does; the sender runs beside it."""

    points, ordered = POINTS, True

    def place(self, directory: Path) -> MemoryLog:
        return MemoryLog()

    def make(self, place: MemoryLog, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> ActionSink:
        return ActionSink(*self.parts(place, spec, storage, fail))

    def parts(
        self, place: MemoryLog, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]
    ) -> tuple[SinkContext, Call, Sending]:
        return SinkContext(spec, place, storage, Path(), fail), call(lambda row, key: None).action(), Sending()

    def rows(self, place: MemoryLog) -> list[Row]:
        chunks = place.topic(outbox_topic("contract", "results")).read(0)
        return [(row["id"], row["text"]) for chunk in chunks for row in chunk.rows.to_pylist()]
