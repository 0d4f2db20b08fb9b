"""Bugs planted in actions: the suites must catch each of them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import urllib3

from contract import test_actions
from penstock.core.columns import EVENT_TIME, POSITION, TIME
from penstock.core.schema import TIMESTAMP
from penstock.log.port import Topic
from penstock.sinks.actions import sink as sinks
from penstock.sinks.actions.http.addresses import Endpoint, Hosts, Resolve
from penstock.sinks.actions.outbox.intents import Intents
from penstock.sinks.actions.port import Action, Intent
from penstock.sinks.actions.sink import ActionSink
from penstock.sinks.port import Delivery, SinkContext, SinkSpec
from penstock.sinks.staged import staged_rows
from penstock.storage.port import Storage
from penstock.testing.contracts.action import Bench, Received
from penstock.testing.receiver import Receiver
from unit.sinks.actions import test_webhook

pytestmark = pytest.mark.faults
Failed = (AssertionError, pytest.fail.Exception)


def given(suite: test_actions.TestCall) -> tuple[list[Received], Callable[..., Bench]]:
    """A receiver, and what sends to it."""
    received: list[Received] = []
    return received, lambda storage=None: Bench(suite.action(received), storage=storage)


class KeyFromTheEpoch(Intents):
    def __init__(self, outbox: Topic, *given: Any) -> None:
        super().__init__(outbox, *given)
        self.frames = lambda: [frame for frame in outbox.frames(0) if frame.count and frame.sender]

    def more(self) -> Iterator[Intent]:
        for intent in super().more():
            frame = next(frame for frame in self.frames() if frame.base <= intent.offset < frame.end)
            yield replace(intent, key=f"{frame.sender.sequence if frame.sender else 0}/{intent.offset - frame.base}")


def test_a_key_made_from_the_number_of_the_epoch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "Intents", KeyFromTheEpoch)
    with pytest.raises(Failed):
        test_actions.TestCall().test_other_cuts_of_the_input_give_the_same_keys(*given(test_actions.TestCall()))


class Postponed:
    """Says that it is done, and does it with the next one: the outcome is noted before the call."""

    called = "postponed"

    def __init__(self, inner: Action) -> None:
        self.inner, self.waiting = inner, list[Intent]()

    def open(self) -> None:
        self.waiting.clear()

    def do(self, intent: Intent) -> None:
        for earlier in self.waiting:
            self.inner.do(earlier)
        self.waiting[:] = [intent]

    def close(self) -> None:
        for earlier in self.waiting:
            self.inner.do(earlier)
        self.waiting.clear()


class OutcomeBeforeTheCall(test_actions.TestCall):
    __test__ = False

    def action(self, receiver: list[Received]) -> Action:
        return Postponed(super().action(receiver))


def test_an_outcome_that_is_noted_before_the_call_is_caught() -> None:
    suite = OutcomeBeforeTheCall()
    with pytest.raises(Failed):
        suite.test_after_a_crash_nothing_is_lost_and_doubles_have_the_same_key(*given(suite), "action.noted", 1)


class IntentsBesideTheEpoch(ActionSink):
    """Intents are appended without the epoch's stamp, and the marker behind them."""

    def __init__(self, context: SinkContext, *given: Any) -> None:
        super().__init__(context, *given)
        self.context = context

    def deliver(self, delivery: Delivery) -> None:
        spec = self.context.spec
        rows = staged_rows(self.context.storage, delivery.files, spec.schema)
        topic = self.context.log.topic(sinks.outbox_topic(spec.flow, spec.name))
        rows = rows.append_column(EVENT_TIME, rows.column(TIME).cast(TIMESTAMP))
        for batch in rows.select([*spec.schema.names, EVENT_TIME, POSITION]).to_batches():
            topic.append(0, batch)
        super().deliver(replace(delivery, files=()))


class Beside(test_actions.TestOutbox):
    __test__ = False

    def make(self, place: Any, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> ActionSink:
        return IntentsBesideTheEpoch(*self.parts(place, spec, storage, fail))


def test_intents_outside_the_transaction_of_the_epoch_are_caught(tmp_path: Path) -> None:
    with pytest.raises(Failed):
        Beside().test_a_crash_at_any_point_loses_nothing_and_doubles_nothing(tmp_path)


def test_a_redirect_that_is_followed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = urllib3.HTTPConnectionPool.urlopen

    def follows(self: Any, method: str, path: str, *given: Any, **named: Any) -> Any:
        answer = real(self, method, path, *given, **named)
        place = answer.headers.get("Location")
        return urllib3.request(method, place, preload_content=False) if place else answer

    monkeypatch.setattr(urllib3.HTTPConnectionPool, "urlopen", follows)
    with Receiver() as at, pytest.raises(Failed):
        test_webhook.test_a_redirect_is_not_followed(at)


def test_an_address_that_is_resolved_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Hosts.address

    def twice(self: Hosts, endpoint: Endpoint, resolve: Resolve) -> str:
        real(self, endpoint, resolve)
        return resolve(endpoint.host, endpoint.port)[0]

    monkeypatch.setattr(Hosts, "address", twice)
    with Receiver() as at, pytest.raises(Failed):
        test_webhook.test_an_inner_server_is_never_reached_under_a_name_that_was_not_allowed(at, monkeypatch)
