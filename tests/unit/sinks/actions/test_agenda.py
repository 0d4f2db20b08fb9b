"""What is due first goes first; of a lane only the oldest."""

from penstock.sinks.actions.outbox.agenda import Agenda
from penstock.sinks.actions.port import Intent


def intent(offset: int, lane: bytes | None = None) -> Intent:
    return Intent(offset, str(offset), {}, b"{}", 0, lane)


def test_intents_without_a_lane_go_in_their_order_and_a_failed_one_waits_alone() -> None:
    agenda = Agenda()
    for offset in range(3):
        agenda.add(intent(offset), 0, now=0.0)
    first = agenda.take()
    agenda.put_back(first, due=5.0)
    assert [agenda.take().intent.offset for _ in range(2)] == [1, 2]
    assert (agenda.due(), agenda.oldest) == (5.0, 0)


def test_of_a_lane_the_next_goes_when_the_one_before_is_settled() -> None:
    agenda = Agenda()
    for offset, lane in enumerate([b"a", b"a", b"b"]):
        agenda.add(intent(offset, lane), 0, now=0.0)
    first, other = agenda.take(), agenda.take()
    assert (first.intent.offset, other.intent.offset, agenda.due()) == (0, 2, None)
    agenda.put_back(first, due=1.0)
    assert agenda.take() is first
    agenda.settle(first, now=2.0)
    assert (agenda.take().intent.offset, agenda.oldest, len(agenda)) == (1, 1, 2)
