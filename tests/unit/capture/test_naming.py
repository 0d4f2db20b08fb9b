"""Names of topics for tables: one for each, which tells its table, and none that another could be taken for."""

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from amount import cases
from penstock.capture.naming import USUAL, TopicNames, escaped, unescaped
from penstock.core.names import check_name
from penstock.errors import BadName

TEXTS = st.text(st.characters(min_codepoint=1, codec="utf-8"), min_size=1, max_size=6) | st.text("aA.-_2e", min_size=1, max_size=8)
TABLES = st.tuples(TEXTS, TEXTS)
TEMPLATES = st.sampled_from([USUAL, "{schema}.{table}", "cdc.{schema}.{table}.v1", "{table}.of.{schema}"])


@settings(max_examples=cases(300))
@given(TEMPLATES, TABLES)
def test_a_topic_is_a_name_and_tells_its_table(template: str, table: tuple[str, str]) -> None:
    names = TopicNames("shop", template)
    topic = names.topic(table)
    assert check_name(topic) == topic
    assert names.table(topic) == table


@settings(max_examples=cases(300))
@given(TABLES, TABLES)
def test_two_tables_never_have_one_topic(first: tuple[str, str], second: tuple[str, str]) -> None:
    assume(first != second)
    names = TopicNames("shop")
    assert names.topic(first) != names.topic(second)


@settings(max_examples=cases(200))
@given(st.text("aA.-_2ef", max_size=12))
def test_what_can_be_unescaped_was_escaped(text: str) -> None:
    try:
        found = unescaped(text)
    except BadName:
        return
    assert escaped(found) == text


@settings(max_examples=cases(200))
@given(st.sets(TABLES, max_size=4), st.sets(st.text("aAb.", min_size=1, max_size=3).map("shop.".__add__), max_size=3))
def test_collisions_are_those_that_a_loop_over_all_pairs_finds(tables: set[tuple[str, str]], taken: set[str]) -> None:
    names = TopicNames("shop")
    topics = [names.topic(table) for table in tables]
    others = [*taken, names.transactions]
    same = any(a.casefold() == b.casefold() for i, a in enumerate(topics) for b in [*topics[i + 1 :], *others])
    if same:
        with pytest.raises(BadName):
            names.topics(tables, taken)
    else:
        assert names.topics(tables, taken) == dict(zip(tables, topics, strict=True))


def test_usual_names_stay_as_they_are() -> None:
    assert TopicNames("shop").topic(("public", "order_items")) == "shop.public.order_items"
    assert TopicNames("pg", "{name}.{table}").topic(("public", "users")) == "pg.users"
    assert TopicNames("pg", "{name}.{table}").table("pg.users") == ("", "users")
    assert TopicNames("shop").topic(("public", "order items.v-2")) == "shop.public.order-20items-2ev-2d2"


@pytest.mark.parametrize(
    "tables",
    [
        [("public", "users"), ("public", "Users")],
        [("PUBLIC", "users"), ("public", "users")],
    ],
)
def test_tables_that_differ_in_case_only_are_refused_with_both_names(tables: list[tuple[str, str]]) -> None:
    with pytest.raises(BadName, match="differ in upper and lower case only") as error:
        TopicNames("shop").topics(tables)
    assert all(f"of table {schema}.{table}" in str(error.value) for schema, table in tables)


def test_tables_that_a_template_throws_together_are_refused() -> None:
    with pytest.raises(BadName, match="would be called the same"):
        TopicNames("shop", "{name}.{table}").topics([("a", "users"), ("b", "users")])
    with pytest.raises(BadName, match="would be called the same"):
        TopicNames("shop", "{name}.{table}").topics([("public", "transaction")])
    with pytest.raises(BadName, match="would be called the same"):
        TopicNames("shop").topics([("public", "users")], ["Shop.public.users"])


def test_topics_that_were_there_before_do_not_trouble_each_other() -> None:
    assert TopicNames("shop").topics([("a", "b")], ["Other", "other"]) == {("a", "b"): "shop.a.b"}


@pytest.mark.parametrize(
    "template", ["{name}", "{schema}{table}", "{table}.{table}", "{table}.{other}", "{table}/", "{name!r}.{table}", ""]
)
def test_a_template_that_cannot_tell_tables_apart_is_refused(template: str) -> None:
    with pytest.raises(BadName, match=re.escape("cannot name topics")):
        TopicNames("shop", template)


def test_a_topic_whose_name_is_too_long_is_refused() -> None:
    with pytest.raises(BadName, match="cannot name a topic"):
        TopicNames("shop").topic(("ä" * 30, "ä" * 31))


def test_a_topic_of_another_capture_tells_no_table() -> None:
    assert TopicNames("shop").table("shop2.public.users") is None
    assert TopicNames("shop").table("shop.public.us-zz") is None
    assert TopicNames("shop").table("shop.public.us-61") is None
