"""Messages moved from one queue to another, and dead letters sent back."""

from typing import Any

import pytest

from penstock import Limit, Message, Queue
from penstock.errors import BadInput, Full, NotFound
from penstock.log.groups.leases import ManualClock
from penstock.queue.message import StoredMessage
from penstock.queue.port import Settlement
from unit.queue.conftest import Make


def kill(queue: Queue, reason: str = "timeout", most: int = 1000) -> None:
    """Everything that is ready goes to the dead letters."""
    with queue.consumer(prefetch=most) as consumer:
        for message in consumer.receive(most):
            message.reject(reason)


def ready(queue: Queue) -> list[str]:
    return [message.text for message in queue.peek(1000)]


def test_dead_letters_go_back_to_where_they_died_as_they_were(emails: Queue) -> None:
    emails.send_many([Message(b"a", "m-1", "ann", {"trace": b"7"}, 3, route="x.y"), "b"])
    kill(emails)
    done = emails.dead_letters.redrive()
    assert (done.moved, done.left) == (2, 0)
    assert emails.dead_letters.state().counts["acked"] == 2
    with emails.consumer() as consumer:
        [message, other] = consumer.receive(2)
        assert (message.id, message.key, message.priority, message.route) == ("m-1", "ann", 3, "x.y")
        assert message.headers["trace"] == b"7"
        assert (message.dead, message.attempt, other.text) == (None, 1, "b")


def test_a_dry_run_shows_what_would_be_done_and_does_nothing(emails: Queue) -> None:
    emails.send_many(["a", "b"])
    kill(emails)
    done = emails.dead_letters.redrive(edit=lambda m: m.text.upper(), where=lambda m: m.text != "b", dry_run=True)
    assert (done.moved, done.left) == (1, 1)
    [change] = done.changes
    assert (change.before.text, change.to, change.after.body) == ("a", emails.name, b"A")
    assert ready(emails) == []
    assert ready(emails.dead_letters) == ["a", "b"]


def test_only_those_go_that_are_chosen_and_they_may_be_changed(emails: Queue) -> None:
    emails.send_many({"to": name, "n": n} for n, name in enumerate(["ann@", "bob", "cid@"] * 100))
    kill(emails)

    def repaired(message: StoredMessage) -> dict[str, Any] | None:
        said = message.json()
        return None if said["n"] == 1 else {**said, "to": said["to"] + "@"}

    done = emails.dead_letters.redrive(where=lambda m: not m.json()["to"].endswith("@"), edit=repaired)
    assert (done.moved, done.left) == (99, 201)
    assert {message.json()["to"] for message in emails.peek(1000)} == {"bob@"}
    left = emails.dead_letters.peek(1000)
    assert len(left) == 201
    assert {message.attempt for message in left} == {0}  # to be looked at was no try
    assert emails.dead_letters.state().lent == 0


def test_no_more_go_than_asked_for(emails: Queue) -> None:
    emails.send_many(str(n) for n in range(250))
    kill(emails)
    assert emails.dead_letters.redrive(most=120).moved == 120
    assert ready(emails) == [str(n) for n in range(120)]
    assert emails.dead_letters.redrive(most=5, where=lambda m: m.text.endswith("9")).moved == 5
    assert ready(emails)[120:] == ["129", "139", "149", "159", "169"]
    assert emails.dead_letters.state().ready == 125
    with pytest.raises(BadInput):
        emails.dead_letters.redrive(most=0)


def test_a_message_that_dies_again_meanwhile_is_not_sent_back_twice(emails: Queue) -> None:
    emails.send_many(str(n) for n in range(150))
    kill(emails)

    def again(message: StoredMessage) -> bool:
        kill(emails, "again")
        return True

    assert emails.dead_letters.redrive(where=again).moved == 150


def test_a_message_goes_back_to_the_queue_it_died_in_and_to_no_other_of_its_source(make: Make) -> None:
    packing, billing = make("packing", source="orders"), make("billing", source="orders")
    packing.send("o-1")
    kill(packing)
    assert packing.dead_letters.redrive().moved == 1
    assert ready(packing) == ["o-1"]
    assert ready(billing) == ["o-1"]  # the first one only
    kill(packing, "again")
    [message] = packing.dead_letters.peek()
    assert message.dead
    assert message.dead.reason == "again"
    assert packing.dead_letters.redrive().moved == 1
    assert ready(packing) == ["o-1"]


def test_queues_may_share_their_dead_letters(make: Make) -> None:
    first, second = make("first", dead="morgue"), make("second", dead="morgue")
    for queue in (first, second):
        queue.send(queue.name)
        kill(queue)
    assert first.dead_letters.name == second.dead_letters.name == "morgue"
    assert first.dead_letters.redrive().moved == 2
    assert (ready(first), ready(second)) == (["first"], ["second"])


def test_messages_are_moved_to_another_queue_with_what_is_said_of_them(make: Make) -> None:
    emails, parked = make("emails"), make("parked")
    emails.send_many(["a", "b"])
    emails.send("later", delay="1 hour")
    assert emails.move("parked", most=1).moved == 1
    kill(emails)
    assert emails.dead_letters.move(parked).moved == 1
    assert ready(parked) == ["a", "b"]
    assert [message.dead and message.dead.reason for message in parked.peek()] == [None, "timeout"]
    assert emails.state().delayed == 1
    assert parked.redrive("emails", where=lambda m: m.dead is not None).moved == 1


def test_what_cannot_be_moved_is_told_and_everything_stays(make: Make) -> None:
    emails = make("emails")
    emails.send_many(["a", "b"])
    with pytest.raises(BadInput, match="is not a dead letter"):
        emails.redrive()
    with pytest.raises(BadInput, match="to itself"):
        emails.move("emails")
    with pytest.raises(NotFound, match="there is no queue email"):
        emails.move("email")
    with pytest.raises(ZeroDivisionError):
        emails.move("emails.dead", where=lambda m: 1 // 0 > 0)
    state = emails.state()
    assert (state.ready, state.lent) == (2, 0)


def test_a_queue_that_drops_leaves_what_it_did_not_take(make: Make) -> None:
    emails, small = make("emails"), make("small", limit=Limit("drop-newest", messages=1))
    emails.send_many(["a", "b"])
    done = emails.move(small)
    assert (done.moved, done.left) == (1, 1)
    assert (ready(small), ready(emails)) == (["a"], ["b"])


def test_a_full_queue_ends_it_and_nothing_is_lost(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.queue.queue.WAIT", "1 ms")
    emails, small = make("emails"), make("small", limit=Limit("push-back", messages=120))
    emails.send_many(str(n) for n in range(150))
    with pytest.raises(Full):
        emails.move(small)
    assert len(ready(small)) + len(ready(emails)) == 150
    assert emails.state().lent == 0


def test_a_crash_between_sending_and_acking_leaves_a_double_of_one_id(make: Make, leases: ManualClock) -> None:
    emails, parked = make("emails"), make("parked")
    emails.send("x", id="m-1")
    settle = emails.port.settle

    def crash(settlements: list[Settlement]) -> object:
        if any(s.fate == "ack" for s in settlements):
            raise NotFound("as if the power were gone")
        return settle(settlements)

    emails.port.settle = crash  # type: ignore[assignment, method-assign]
    with pytest.raises(NotFound):
        emails.move(parked)
    emails.port.settle = settle  # type: ignore[method-assign]
    leases.advance(60)
    assert emails.move(parked).moved == 1
    assert [message.id for message in parked.peek()] == ["m-1", "m-1"]
