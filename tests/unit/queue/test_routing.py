"""Which messages a binding takes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.queue.port import Binding
from penstock.queue.state.routing import FOR, check_route, fits, takes

WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=6)
PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#"]), max_size=6)
HEADERS = st.dictionaries(st.sampled_from(["x", "y", "z"]), st.sampled_from([b"", b"1", b"2"]))


def by_regex(pattern: list[str], words: list[str]) -> bool:
    """Every word ends with a comma: then a word is a text without one, and any number of them is easily said."""
    parts = {"*": "[^,]+,", "#": "([^,]+,)*"}
    return bool(re.fullmatch("".join(parts.get(word, f"{word},") for word in pattern), "".join(f"{word}," for word in words)))


@given(PATTERNS, WORDS)
def test_a_pattern_matches_what_a_regular_expression_would(pattern: list[str], words: list[str]) -> None:
    assert fits(Binding(".".join(pattern)), ".".join(words), {}) == by_regex(pattern, words)


@given(HEADERS, HEADERS, st.booleans())
def test_headers_match_all_or_any(wanted: dict[str, bytes], there: dict[str, bytes], any_header: bool) -> None:
    same = [name in there and there[name] == value for name, value in wanted.items()]
    expected = not same or (True in same if any_header else False not in same)
    assert fits(Binding(headers=wanted, any_header=any_header), "a.b", there) == expected


@given(st.lists(st.builds(Binding, PATTERNS.map(".".join), HEADERS), max_size=4), WORDS.map(".".join), HEADERS)
def test_one_binding_is_enough_and_none_takes_everything(bindings: list[Binding], route: str, headers: dict[str, bytes]) -> None:
    assert takes(bindings, route, headers) == (not bindings or any(fits(binding, route, headers) for binding in bindings))


def test_a_message_for_one_queue_is_for_no_other() -> None:
    headers = {FOR: b"emails"}
    assert takes([Binding("never")], "a", headers, "emails")
    assert not takes([], "a", headers, "videos")


def test_many_hashes_take_no_more_time_than_a_few() -> None:
    pattern, route = ".".join(["#"] * 60 + ["end"]), ".".join(["a"] * 120)
    assert not fits(Binding(pattern), route, {})
    assert fits(Binding(pattern), route + ".end", {})


@pytest.mark.parametrize("route", ["", "a", "a.b", "größe.1", "a-b_c.d", "x" * 255, "🐢" * 63])
def test_routes_are_words_with_dots(route: str) -> None:
    assert check_route(route) == route


@pytest.mark.parametrize("route", [".", "a.", ".a", "a..b", "*", "a.#", "a b", "a\n", "\ud800", "x" * 256, "🐢" * 64, 5, None])
def test_what_is_no_route_is_refused(route: str) -> None:
    with pytest.raises(BadInput, match=r"(cannot be|too long for) a route"):
        check_route(route)


@pytest.mark.parametrize("pattern", ["*", "#", "a.*.#", "#.#"])
def test_patterns_may_hold_stars_and_hashes(pattern: str) -> None:
    assert check_route(pattern, pattern=True) == pattern


@pytest.mark.parametrize("pattern", ["a*", "**", "##", "#a.b", "a..#"])
def test_stars_and_hashes_stand_for_whole_words(pattern: str) -> None:
    with pytest.raises(BadInput, match="cannot be a pattern of routes"):
        check_route(pattern, pattern=True)
