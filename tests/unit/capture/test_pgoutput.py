"""pgoutput by columns: it says what the plain decoder says, of any messages in any cut, damaged ones too."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amount import cases
from capture_laws import agrees, cut
from capture_messages import begin, commit, delete, described, emitted, insert, streams, truncate, update
from capture_reference import UNCHANGED, Plain, changes_in, in_order, said_by
from penstock.capture.postgres.decode.batches import Batcher
from penstock.capture.postgres.decode.messages import Relation, RelationColumn
from penstock.capture.postgres.decode.pgoutput import Decoder
from penstock.errors import BadMessage

CUTS = st.lists(st.integers(0, 60), max_size=4)
USERS = Relation(7, "public", "users", "d", (RelationColumn("id", 20, -1, True), RelationColumn("name", 25, -1, False)))


@settings(max_examples=cases(500))
@given(streams(), CUTS)
def test_columns_say_what_the_plain_decoder_says_however_the_messages_are_cut(messages: list[bytes], places: list[int]) -> None:
    assert Plain().decode(messages) is not None
    assert agrees(Decoder(), messages, places)


@settings(max_examples=cases(1000))
@given(streams().filter(bool), CUTS, st.data())
def test_a_damaged_message_is_refused_by_both_or_read_alike(messages: list[bytes], places: list[int], data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(messages) - 1))
    message = messages[which]
    if data.draw(st.booleans()):
        damaged = message[: data.draw(st.integers(0, len(message) - 1))]
    else:
        place = data.draw(st.integers(0, 8 * len(message) - 1))
        damaged = message[: place // 8] + bytes([message[place // 8] ^ 1 << place % 8]) + message[place // 8 + 1 :]
    assert agrees(Decoder(), [*messages[:which], damaged, *messages[which + 1 :]], places)


@settings(max_examples=cases(100))
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_any_bytes_are_refused_by_both_or_read_alike(messages: list[bytes]) -> None:
    assert agrees(Decoder(), messages)
    assert agrees(Decoder(), [begin(1, 1), described(USERS), *messages])


@settings(max_examples=cases(150))
@given(streams(), CUTS)
def test_batches_hold_whole_transactions_and_nothing_is_kept_back_longer(messages: list[bytes], places: list[int]) -> None:
    batcher, decoder, came, given_out = Batcher(), Decoder(), list[bytes](), list[bytes]()
    for read in cut(messages, places):
        batcher.add_all(read)
        came += read
        taken = batcher.take()
        given_out += taken
        decoder.decode(taken)
        assert not decoder.within_transaction
        waiting = came[len(given_out) :]
        assert [message[:1] for message in waiting[:1]] in ([], [b"B"])
        assert not any(message.startswith(b"C") for message in waiting)
        assert batcher.held == sum(map(len, waiting))
    assert (given_out, batcher.has_whole) == (messages, False)


@settings(max_examples=cases(150))
@given(streams())
def test_values_that_were_not_changed_are_taken_from_rows_sent_whole(messages: list[bytes]) -> None:
    for table in Decoder().decode(messages).tables:
        for change, full in zip(changes_in(table), changes_in(table.with_old_values()), strict=True):
            old = change.before if change.old == "O" and change.before else (UNCHANGED,) * len(table.relation.columns)
            new = change.after and tuple(o if n == UNCHANGED else n for n, o in zip(change.after, old, strict=True))
            assert full == replace(change, after=new)


def test_an_unfinished_transaction_is_held_and_counted_until_its_commit() -> None:
    batcher = Batcher(bound=100)
    first = [begin(1, 1), described(USERS), commit(1)]
    second = [begin(2, 2), insert(7, ["1", "x" * 80])]
    batcher.add_all([*first, *second])
    assert batcher.full
    assert batcher.take() == first
    assert (batcher.held, batcher.full, batcher.take()) == (sum(map(len, second)), True, [])
    batcher.add(commit(2))
    assert batcher.take() == [*second, commit(2)]
    assert batcher.held == 0


def test_a_transaction_larger_than_the_bound_is_given_out_in_parts_that_count_on() -> None:
    batcher, decoder, said = Batcher(bound=1), Decoder(), []
    messages = [begin(5, 9), described(USERS), *(insert(7, [str(i), None]) for i in range(4)), commit(5)]
    for message in messages:
        batcher.add(message)
        said += said_by(decoder.decode(batcher.take_part()))
    assert in_order(said) == in_order(Plain().decode(messages))


def test_a_message_outside_of_transactions_waits_for_none() -> None:
    batcher = Batcher()
    batcher.add(emitted("beat", b"", 9, False))
    assert len(batcher.take()) == 1


def test_a_table_of_1600_columns_is_read_like_any_other() -> None:
    wide = Relation(3, "public", "wide", "f", tuple(RelationColumn(f"c{i}", 25, -1, i == 0) for i in range(1600)))
    values = [None if i % 7 == 0 else UNCHANGED if i % 11 == 0 else f"v{i}" for i in range(1600)]
    changes = [insert(3, values), update(3, values, values, b"O"), delete(3, values, b"O")]
    assert agrees(Decoder(), [begin(1, 1), described(wide), *changes, commit(1)])


def test_more_messages_than_are_laid_out_at_once_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [begin(5, 9), described(USERS), *(insert(7, [str(i), "x"]) for i in range(50)), truncate([7]), commit(5)]
    monkeypatch.setattr("penstock.capture.postgres.decode.pgoutput.AT_ONCE", 64)
    assert agrees(Decoder(), messages)


def test_where_a_table_gets_other_columns_another_value_begins() -> None:
    wider = Relation(7, "public", "users", "d", (*USERS.columns, RelationColumn("age", 23, -1, False)))
    other = Relation(8, "public", "other", "d", USERS.columns)
    rows = [insert(7, ["1", "a"]), insert(8, ["1", "a"]), described(wider), insert(7, ["2", "b", "30"]), insert(8, ["2", "b"])]
    batch = Decoder().decode([begin(1, 1), described(USERS), described(other), *rows, commit(1)])
    assert [(table.relation, table.index.tolist()) for table in batch.tables] == [(USERS, [0]), (wider, [2]), (other, [1, 3])]


def test_the_same_description_again_cuts_nothing() -> None:
    rows = [insert(7, ["1", "a"]), described(USERS), insert(7, ["2", "b"])]
    batch = Decoder().decode([begin(1, 1), described(USERS), *rows, commit(1)])
    assert [len(table) for table in batch.tables] == [2]


def test_damage_is_refused_with_what_and_where_and_changes_nothing() -> None:
    decoder = Decoder()
    decoder.decode([begin(1, 1), described(USERS)])
    good = insert(7, ["1", "a"])
    with pytest.raises(BadMessage) as error:
        decoder.decode([good, good[:-1], commit(1)])
    assert "a value goes on behind the end (column 'name' of public.users)" in str(error.value)
    assert "message 1 of the batch, 'I'" in str(error.value)
    assert decoder.decode([good, commit(1)]).transactions.changes.tolist() == [1]


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ([b""], "it is empty"),
        ([b"Z"], "its kind is unknown"),
        ([commit(1)], "a transaction begins or ends where it cannot"),
        ([begin(1, 1), begin(2, 2)], "a transaction begins or ends where it cannot"),
        ([begin(1, 1), commit(2)], "it ends another transaction"),
        ([insert(7, ["1", "a"])], "it stands outside of a transaction"),
        ([begin(1, 1), insert(7, ["1", "a"])], "it names table 7, which was not described"),
        ([begin(1, 1), truncate([7])], "it names table 7, which was not described"),
        ([begin(1, 1), described(USERS), insert(7, ["1"])], "the row has not as many columns as the table"),
        ([begin(1, 1), described(USERS), insert(7, ["1", "ä"]).replace("ä".encode(), b"\xff\xff")], "a value is not UTF-8"),
        ([b"B" + struct.pack(">QqI", 1, 2**63 - 1, 1)], "its time lies outside the years 1 to 9999"),
    ],
)
def test_the_error_says_what_is_wrong(messages: list[bytes], what: str) -> None:
    with pytest.raises(BadMessage, match="a message of pgoutput cannot be read") as error:
        Decoder().decode(messages)
    assert what in str(error.value)
