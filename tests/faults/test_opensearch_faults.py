"""A real OpenSearch whose answers are lost, drivers that were replaced; and bugs that must be caught."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from opensearch_documents import found
from penstock.core.change import Op
from penstock.errors import Mismatch, SinkUnavailable
from penstock.sinks import opensearch as index_of
from penstock.sinks.port import Sink, SinkContext
from penstock.sinks.stores.search.opensearch import OpenSearchStore
from penstock.sinks.stores.search.opensearch_http import Answer, Client
from penstock.sinks.stores.sink import StoreSink
from penstock.testing.servers.opensearch import OpenSearchServer
from store_epochs import Epochs, spec_of

pytestmark = pytest.mark.faults


def build_with(server: OpenSearchServer, index: str, client: type[Client]) -> Callable[[SinkContext], Sink]:
    return lambda context: StoreSink(context, OpenSearchStore(index_of(server.url, index), context.spec, client))


class AnswerLost(Client):
    """The connection breaks behind each marker: the server has it, and nobody hears so."""

    def ask(self, method: str, path: str, body: Any = None, allowed: tuple[int, ...] = ()) -> Answer:
        found = super().ask(method, path, body, allowed)
        if method == "PUT" and "if_seq_no" in path:
            raise SinkUnavailable("the connection is cut")
        return found


class NoVersions(Client):
    """Whoever writes last is right."""

    def ask(self, method: str, path: str, body: Any = None, allowed: tuple[int, ...] = ()) -> Answer:
        if isinstance(body, bytes):
            body = re.sub(rb',"version":\d+,"version_type":"external"', b"", body)
        return super().ask(method, path, body, allowed)


class AnyMarker(Client):
    """The marker is written whoever has written it meanwhile."""

    def ask(self, method: str, path: str, body: Any = None, allowed: tuple[int, ...] = ()) -> Answer:
        return super().ask(method, path.partition("?if_seq_no")[0], body, allowed)


def overtaken(server: OpenSearchServer, index: str, kind: type[Client]) -> tuple[dict[str, Any], bool]:
    """An old driver falls asleep before it writes its second epoch; its successor writes that one and the next. What the index has
    when the old one has written after all, and whether it was told."""
    spec = spec_of(index, "id int, n int", "id", updating=True)
    second = ({"id": 1, "n": 1}, {"id": 2, "n": 1})

    class Asleep(kind):  # type: ignore[valid-type, misc]
        def ask(self, method: str, path: str, body: Any = None, allowed: tuple[int, ...] = ()) -> Answer:
            if path.endswith("/_bulk") and old.last == 0 and old.given and not woken:
                woken.append(True)
                new = Epochs(index_of(server.url, index).build, spec, generation=2)
                new.give(*second)
                new.give({"id": 1, "n": 2}, second[1], ops=[Op.INSERT, Op.DELETE])
            answer: Answer = super().ask(method, path, body, allowed)
            return answer

    woken: list[bool] = []
    old = Epochs(build_with(server, index, Asleep), spec)
    old.give({"id": 1, "n": 0})
    refused = False
    try:
        old.give(*second)
    except SinkUnavailable:
        with pytest.raises(Mismatch):
            old.sink.open("life", 1)
        refused = True
    assert woken
    return found(server, index), refused


def test_an_old_driver_that_wakes_up_changes_nothing_and_is_told(opensearch: OpenSearchServer) -> None:
    assert overtaken(opensearch, "asleep", Client) == ({"1": {"id": 1, "n": 2}}, True)


def test_versions_left_out_are_caught(opensearch: OpenSearchServer) -> None:
    rows, _ = overtaken(opensearch, "unversioned", NoVersions)
    assert rows != {"1": {"id": 1, "n": 2}}, "an old row has come back, and so has one that was deleted"


def test_a_marker_that_anybody_may_write_is_caught(opensearch: OpenSearchServer) -> None:
    _, refused = overtaken(opensearch, "unguarded", AnyMarker)
    assert not refused


def test_where_the_answer_was_lost_the_marker_says_what_became_of_it(opensearch: OpenSearchServer) -> None:
    spec = spec_of("cut", "id int, n int", "id")
    Epochs(index_of(opensearch.url, "cut").build, spec).give({"id": 1, "n": 0})
    cut = Epochs(build_with(opensearch, "cut", AnswerLost), spec)
    with pytest.raises(SinkUnavailable):
        cut.give({"id": 1, "n": 1})
    assert cut.sink.open("life", 1) == 1
    assert found(opensearch, "cut") == {"1": {"id": 1, "n": 1}}
