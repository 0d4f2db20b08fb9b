"""How rows stand in a real Valkey: every type, hostile keys and values, what is refused."""

import math
from typing import Any

import orjson
import pytest

from penstock.core.change import Op
from penstock.core.position import Position
from penstock.errors import BadInput, SinkError, SinkUnavailable
from penstock.sinks import redis
from penstock.sinks.stores.redis.store import RedisDefinition
from penstock.testing.servers.valkey import ValkeyServer
from redis_keys import found
from store_epochs import Epochs, spec_of
from typed_rows import EVERY_TYPE, HOSTILE, ROW


def test_every_type_in_a_hash(valkey: ValkeyServer) -> None:
    epochs = Epochs(redis(valkey.url, "types").build, spec_of("types", EVERY_TYPE, "id"))
    epochs.give(ROW, {"id": 2}, {"id": 3, "d": math.nan, "f": math.inf})
    rows = found(valkey, "types")
    assert rows[b"-9223372036854775808"] == {
        b"id": b"-9223372036854775808",
        b"b": b"true",
        b"i8": b"-128",
        b"i16": b"32767",
        b"i32": b"-1",
        b"f": b"0.5",
        b"d": b"0.1",
        b"s": 'tab\tline\r\nquote" \\ 日本 \x00 end'.encode(),
        b"raw": b"\x00\xff\r\n",
        b"day": b"1969-12-31",
        b"at": b"2026-01-02T03:04:05.000600Z",
        b"money": b"0.0000000001",
        b"list": b"[1,null]",
        b"map": b'{"k":1}',
        b"nested": b'{"a":1,"s":"\\""}',
    }
    assert rows[b"2"] == {b"id": b"2"}, "null is a field that is not there"
    assert rows[b"3"] == {b"id": b"3", b"d": b"nan", b"f": b"inf"}


def test_every_type_in_json(valkey: ValkeyServer) -> None:
    epochs = Epochs(redis(valkey.url, "json", value="json").build, spec_of("json", EVERY_TYPE, "id"))
    epochs.give(ROW, {"id": 3, "d": math.nan})
    rows = {key: orjson.loads(text) for key, text in found(valkey, "json").items()}
    first = rows[b"-9223372036854775808"]
    assert (first["s"], first["raw"], first["at"], first["money"]) == (
        ROW["s"],
        "AP8NCg==",
        "2026-01-02T03:04:05.000600Z",
        "0.0000000001",
    )
    assert (first["list"], first["map"], first["nested"]) == ([1, None], {"k": 1}, {"a": 1, "s": '"'})
    assert rows[b"3"]["d"] is None, "JSON has no word for NaN"


def test_a_hash_that_is_replaced_keeps_no_field_of_the_old_row(valkey: ValkeyServer) -> None:
    epochs = Epochs(redis(valkey.url, "replaced").build, spec_of("replaced", "id long, a string, b string", "id"))
    valkey.ask("SET", "replaced:2", "of somebody else, and another type")
    epochs.give({"id": 1, "a": "x", "b": "y"}, {"id": 2, "a": "x"})
    epochs.give({"id": 1, "b": "z"})
    assert found(valkey, "replaced") == {b"1": {b"id": b"1", b"b": b"z"}, b"2": {b"id": b"2", b"a": b"x"}}


def test_a_column_that_the_flow_gains_is_there_from_the_next_change_of_a_row_on(valkey: ValkeyServer) -> None:
    build = redis(valkey.url, "gains").build
    Epochs(build, spec_of("gains", "id int, a string", "id")).give({"id": 1, "a": "x"}, {"id": 2, "a": "x"})
    more = Epochs(build, spec_of("gains", "id int, a string, b int", "id"), generation=2)
    more.give({"id": 2, "a": "y", "b": 3})
    assert found(valkey, "gains") == {b"1": {b"id": b"1", b"a": b"x"}, b"2": {b"id": b"2", b"a": b"y", b"b": b"3"}}
    less = Epochs(build, spec_of("gains", "id int, b int", "id"), generation=3)
    less.give({"id": 2, "b": 4})
    assert found(valkey, "gains")[b"2"] == {b"id": b"2", b"b": b"4"}, "a column that the flow loses goes too"


def test_keys_that_differ_never_meet(valkey: ValkeyServer) -> None:
    epochs = Epochs(redis(valkey.url, "pair").build, spec_of("pair", "a string, b string, n int", "a", "b"))
    pairs = [(a, b) for a in HOSTILE for b in HOSTILE]
    epochs.give(*[{"a": a, "b": b, "n": n} for n, (a, b) in enumerate(pairs)])
    rows = found(valkey, "pair")
    assert len(rows) == len(pairs)
    assert rows[b"a%3Ab:%"] == {b"a": b"a:b", b"n": str(pairs.index(("a:b", None))).encode()}
    single = Epochs(redis(valkey.url, "single").build, spec_of("single", "a string, n int", "a"))
    single.give(*[{"a": a, "n": n} for n, a in enumerate(HOSTILE)])
    assert found(valkey, "single").keys() >= {b"", b":", b"%25", b"%2525", b"a:b", b"%", "日本".encode()}
    assert len(found(valkey, "single")) == len(HOSTILE)


def test_keys_of_every_type(valkey: ValkeyServer) -> None:
    key = ("b", "d", "raw", "day", "at", "money")
    epochs = Epochs(redis(valkey.url, "typed").build, spec_of("typed", EVERY_TYPE, *key, updating=True))
    epochs.give(ROW, {**ROW, "d": 0.0})
    assert found(valkey, "typed").keys() == {
        b"true:%b:\x00\xff\r\n:1969-12-31:2026-01-02T03%%3A04%%3A05.000600Z:0.0000000001" % d for d in (b"0.1", b"0")
    }
    epochs.give(ROW, {**ROW, "d": -0.0}, ops=[Op.DELETE, Op.DELETE])
    assert found(valkey, "typed") == {}


def test_rows_without_key_stand_under_their_position(valkey: ValkeyServer) -> None:
    epochs = Epochs(redis(valkey.url, "log").build, spec_of("log", "n int"))
    epochs.give({"n": 1}, {"n": 1})
    assert found(valkey, "log") == {Position("in", 0, at).encode().hex().encode(): {b"n": b"1"} for at in (0, 1)}


def test_rows_without_key_that_change_go_by_their_position(valkey: ValkeyServer) -> None:
    epochs = Epochs(redis(valkey.url, "moved").build, spec_of("moved", "n int", updating=True))
    epochs.give({"n": 1}, {"n": 2})
    epochs.given = 0
    epochs.give({"n": 1}, ops=[Op.DELETE])
    assert list(found(valkey, "moved").values()) == [{b"n": b"2"}]


def test_a_string_is_the_text_of_one_column_and_goes_where_it_is_null(valkey: ValkeyServer) -> None:
    epochs = Epochs(redis(valkey.url, "text", value="string", column="name").build, spec_of("text", "id int, name string", "id"))
    epochs.give({"id": 1, "name": "ann"}, {"id": 2, "name": ""}, {"id": 3, "name": None})
    assert found(valkey, "text") == {b"1": b"ann", b"2": b""}
    epochs.give({"id": 1, "name": None})
    assert found(valkey, "text") == {b"2": b""}


@pytest.mark.parametrize("how", [{"value": "hash"}, {"value": "json"}, {"value": "string", "column": "name"}])
def test_keys_live_as_long_as_was_said(valkey: ValkeyServer, how: dict[str, Any]) -> None:
    prefix = f"ttl-{how['value']}"
    epochs = Epochs(redis(valkey.url, prefix, ttl="1 hour", **how).build, spec_of(prefix, "id int, name string", "id"))
    epochs.give({"id": 1, "name": "ann"}, {"id": 2, "name": "bob"})
    assert all(3_500_000 < valkey.ask("PTTL", f"{prefix}:{i}") <= 3_600_000 for i in (1, 2))
    assert valkey.ask("PTTL", f"penstock:marker:contract:{prefix}") == -1


def test_invalidation_deletes_the_keys_of_rows_that_are_put_and_of_rows_that_go(valkey: ValkeyServer) -> None:
    spec = spec_of("cache", "id int, name string", "id", updating=True)
    epochs = Epochs(redis(valkey.url, "cache", mode="invalidate").build, spec)
    for i in (1, 2, 3):
        valkey.ask("SET", f"cache:{i}", "filled by somebody else")
    epochs.give({"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}, ops=[Op.INSERT, Op.DELETE])
    assert found(valkey, "cache").keys() == {b"3"}


@pytest.fixture
def narrow(valkey: ValkeyServer) -> Any:
    """The server takes values of a megabyte at most."""
    valkey.ask("CONFIG", "SET", "proto-max-bulk-len", 1 << 20)
    yield valkey
    valkey.ask("CONFIG", "SET", "proto-max-bulk-len", 512 << 20)


@pytest.mark.parametrize("how", [{"value": "hash"}, {"value": "json"}, {"value": "string", "column": "name"}])
def test_a_row_that_is_too_long_becomes_a_dead_letter_and_holds_nobody_back(narrow: ValkeyServer, how: dict[str, Any]) -> None:
    prefix = f"long-{how['value']}"
    epochs = Epochs(redis(narrow.url, prefix, **how).build, spec_of(prefix, "id int, name string", "id"))
    epochs.give({"id": 1, "name": "ann"}, {"id": 2, "name": "x" * (1 << 21)}, {"id": 3, "name": "eve"})
    assert found(narrow, prefix).keys() == {b"1", b"3"}
    assert [(row["id"], row["__reason"].endswith("bytes, the server takes 1048576")) for row in epochs.refused] == [(2, True)]
    again = Epochs(redis(narrow.url, prefix, **how).build, epochs.spec, generation=2)
    assert again.refused == epochs.refused, "told again: a crash may have come before they were kept"


def test_a_row_without_any_value_is_refused_as_a_hash(valkey: ValkeyServer) -> None:
    epochs = Epochs(redis(valkey.url, "empty").build, spec_of("empty", "id int, name string", "id"))
    epochs.give({"id": None, "name": None}, {"id": 1, "name": None})
    assert found(valkey, "empty") == {b"1": {b"id": b"1"}}
    assert [row["id"] for row in epochs.refused] == [None]


def test_a_refused_row_stops_the_flow_where_that_was_asked_for(narrow: ValkeyServer) -> None:
    epochs = Epochs(redis(narrow.url, "stop", on_error="stop").build, spec_of("stop", "id int, name string", "id"))
    with pytest.raises(SinkError, match="refuses a row"):
        epochs.give({"id": 1, "name": "x" * (1 << 21)}, {"id": 2, "name": "y"})
    assert found(narrow, "stop") == {}


def test_an_epoch_that_is_larger_than_the_server_takes_says_what_to_do(valkey: ValkeyServer) -> None:
    valkey.ask("CONFIG", "SET", "client-query-buffer-limit", 1 << 20)
    try:
        epochs = Epochs(redis(valkey.url, "large").build, spec_of("large", "id int, name string", "id"))
        with pytest.raises(SinkError, match="more bytes") as refused:
            epochs.give(*[{"id": i, "name": "x" * 1000} for i in range(2000)])
    finally:
        valkey.ask("CONFIG", "SET", "client-query-buffer-limit", 1 << 30)
    assert refused.value.hint
    assert "--max-rows" in refused.value.hint
    assert not isinstance(refused.value, SinkUnavailable)


def test_a_server_without_memory_is_waited_for(valkey: ValkeyServer) -> None:
    epochs = Epochs(redis(valkey.url, "memory").build, spec_of("memory", "id int, name string", "id"))
    valkey.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(SinkUnavailable, match="OOM"):
            epochs.give({"id": 1, "name": "ann"})
    finally:
        valkey.ask("CONFIG", "SET", "maxmemory", 0)
    assert found(valkey, "memory") == {}
    epochs.deliver(0)
    assert found(valkey, "memory") == {b"1": {b"id": b"1", b"name": b"ann"}}


def test_a_password_is_asked_for_by_reference_and_never_shown(valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    valkey.ask("ACL", "SETUSER", "shop", "on", ">tell-nobody", "~secret:*", "~penstock:marker:*", "+@all", "-config")
    url = valkey.url.replace("//", "//shop@")
    spec = spec_of("secret", "id int", "id")
    monkeypatch.setenv("SHOP_PASSWORD", "tell-nobody")
    epochs = Epochs(redis(url, "secret", password="env:SHOP_PASSWORD").build, spec)
    epochs.give({"id": 1})
    assert found(valkey, "secret") == {b"1": {b"id": b"1"}}
    with pytest.raises(SinkError, match="NOPERM"):
        Epochs(redis(url, "other", password="env:SHOP_PASSWORD").build, spec, 2).give({"id": 1})
    monkeypatch.setenv("SHOP_PASSWORD", "tell-nobody-else")
    with pytest.raises(SinkError, match="WRONGPASS") as refused:
        Epochs(redis(url, "secret", password="env:SHOP_PASSWORD").build, spec, 3)
    assert "tell-nobody" not in str(refused.value)


def test_a_store_that_has_lost_everything_has_no_epoch_and_one_that_went_back_is_not_written_on(valkey: ValkeyServer) -> None:
    spec = spec_of("lost", "id int", "id")
    build = redis(valkey.url, "lost").build
    epochs = Epochs(build, spec)
    epochs.give({"id": 1})
    epochs.give({"id": 2})
    marker = "penstock:marker:contract:lost"
    valkey.ask("DEL", "lost:2")
    valkey.ask("HSET", marker, "epoch", 0)  # as a copy of the store would have it
    with pytest.raises(SinkUnavailable, match="gone back from epoch 1 to 0"):
        epochs.give({"id": 3})
    assert found(valkey, "lost").keys() == {b"1"}
    assert Epochs(build, spec, generation=2).last == 0
    valkey.ask("DEL", marker, "lost:1")
    assert Epochs(build, spec, generation=3).last == -1


def test_a_marker_that_is_none_is_not_taken_for_one(valkey: ValkeyServer) -> None:
    valkey.ask("HSET", "penstock:marker:contract:odd", "epoch", "many")
    with pytest.raises(SinkError, match="marker"):
        Epochs(redis(valkey.url, "odd").build, spec_of("odd", "id int", "id"))
    valkey.ask("SET", "penstock:marker:contract:wrong", "text")
    with pytest.raises(SinkError, match="WRONGTYPE"):
        Epochs(redis(valkey.url, "wrong").build, spec_of("wrong", "id int", "id"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"url": "http://host"}, "cannot be read"),
        ({"url": "redis://host/x"}, "cannot be read"),
        ({"url": "redis://host:99999"}, "cannot be read"),
        ({"url": "redis://:secret@host"}, "password"),
        ({"url": "redis://host?colour=red"}, "unknown options: colour"),
        ({"prefix": ""}, "prefix"),
        ({"prefix": "penstock:marker:x"}, "prefix"),
        ({"value": "list"}, "not known"),
        ({"mode": "append"}, "not known"),
        ({"value": "string"}, "column"),
        ({"column": "name"}, "column"),
        ({"ttl": "0 seconds"}, "too short"),
        ({"password": "secret"}, "password"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(wrong: dict[str, Any], message: str) -> None:
    given = {"url": "redis://host", "prefix": "user", **wrong}
    with pytest.raises(BadInput, match=message) as refused:
        redis(given.pop("url"), given.pop("prefix"), **given)
    assert "secret" not in str(refused.value) or "password" in wrong


def test_a_definition_names_its_sink_and_hides_its_url() -> None:
    definition = redis("redis://shop@host:6379/3", "shop:user", key="id", mode="invalidate")
    assert isinstance(definition, RedisDefinition)
    assert (definition.kind, definition.target, definition.columns) == ("redis", "shop.user", ("id",))
    assert "host" not in repr(definition)
    assert definition.details(("id",)) == "key id, invalidated"


def test_a_column_that_is_not_there_is_named(valkey: ValkeyServer) -> None:
    with pytest.raises(SinkError, match="no column 'nome'"):
        Epochs(redis(valkey.url, "c", value="string", column="nome").build, spec_of("c", "id int, name string", "id"))


def test_a_server_that_is_not_there_is_waited_for() -> None:
    with pytest.raises(SinkUnavailable):
        Epochs(redis("redis://127.0.0.1:1", "away").build, spec_of("away", "id int", "id"))
