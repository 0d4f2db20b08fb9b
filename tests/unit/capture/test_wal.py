"""Positions at the end of a server's log, and messages gathered into whole transactions, however they come."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.postgres.decode.batches import Batcher
from penstock.capture.postgres.lsn import lsn_of
from penstock.capture.postgres.position import Copied, WalPosition, named, table_of
from penstock.capture.postgres.wal import before_header

PAGE, SEGMENT = 8192, 16 << 20


def test_the_place_behind_a_header_is_reached_at_the_end_of_the_page_before() -> None:
    assert before_header(lsn_of("0/2018"), PAGE, SEGMENT) == lsn_of("0/2000")
    assert before_header(lsn_of("0/1000028"), PAGE, SEGMENT) == lsn_of("0/1000000")


def test_a_place_where_a_record_ends_is_left_as_it_is() -> None:
    for text in ("0/2028", "0/2020", "0/3000", "0/1000030"):
        assert before_header(lsn_of(text), PAGE, SEGMENT) == lsn_of(text)


@given(st.text(min_size=1), st.text(min_size=1))
def test_tables_are_named_reversibly(schema: str, table: str) -> None:
    assert table_of(named((schema, table))) == (schema, table)


def test_a_position_is_read_as_it_was_written() -> None:
    copied = {"public.t": Copied(False, 2, 10, ("a", "b"), "1.2", ("id",), True)}
    position = WalPosition("system", 1, 10, 20, 30, 4, 5, copied, (7, 8))
    assert WalPosition.of(position.json()) == position


STREAM = [b"B1", b"I1", b"C1", b"M1", b"B2", b"I2", b"I3", b"C2", b"B3", b"C3", b"M2", b"B4", b"I4"]


@given(st.lists(st.integers(0, 4), max_size=8), st.lists(st.booleans(), min_size=20, max_size=20))
def test_messages_are_taken_up_to_the_last_commit_in_any_cut(sizes: list[int], takes: list[bool]) -> None:
    batcher, left, taken, given_in = Batcher(), list(STREAM), list[bytes](), 0
    for size, take in zip([*sizes, len(left)], takes, strict=False):
        batcher.add_all(left[:size])
        given_in += len(left[:size])
        left = left[size:]
        inside = _inside(STREAM[:given_in])
        assert batcher.held == sum(map(len, STREAM[len(taken) : given_in]))
        assert batcher.has_whole == (inside > len(taken))
        if take:
            taken += batcher.take()
            assert taken == STREAM[: max(inside, len(taken))]
    assert [*taken, *batcher.take(), *batcher.take_part()] == STREAM[:given_in]
    assert batcher.held == 0


@given(st.integers(0, len(STREAM)))
def test_what_is_given_back_is_taken_again_before_what_has_come_since(kept: int) -> None:
    batcher = Batcher()
    batcher.add_all(STREAM)
    first = batcher.take()
    kept = min(kept, len(first))
    batcher.give_back(first[kept:], within=_inside(STREAM[:kept]) < kept)
    assert batcher.held == sum(map(len, STREAM[kept:]))
    assert first[:kept] + batcher.take() == first
    assert batcher.take_part() == STREAM[len(first) :]


def _inside(messages: list[bytes]) -> int:
    """How many messages stand before the transaction that is open behind the last of them."""
    whole, is_open = 0, False
    for number, message in enumerate(messages, 1):
        is_open = message[0] == ord("B") or (is_open and message[0] != ord("C"))
        whole = whole if is_open else number
    return whole
