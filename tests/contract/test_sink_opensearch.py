"""An index of a real OpenSearch as a sink: the suite, how rows stand there, what is refused."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opensearch_documents import found
from penstock.core.change import Op
from penstock.errors import BadInput, SinkError, SinkUnavailable
from penstock.sinks import opensearch as index_of
from penstock.sinks.port import SinkContext, SinkSpec
from penstock.sinks.stores.sink import POINTS
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import Row, SinkContract
from penstock.testing.contracts.sink_changes import ChangesContract, Held
from penstock.testing.servers.opensearch import OpenSearchServer
from store_epochs import Epochs, spec_of
from typed_rows import EVERY_TYPE, HOSTILE, NULLS, ROW


class _OfOpenSearch:
    """An index, and a marker, of its own for each place."""

    points = POINTS
    whole = False  # documents of an epoch can be seen before its marker

    @pytest.fixture(autouse=True)
    def _server(self, opensearch: OpenSearchServer) -> Iterator[None]:
        self.server, self.made = opensearch, list[str]()
        yield
        for index in self.made:
            opensearch.ask("DELETE", f"/{index}")

    def place(self, directory: Path) -> str:
        self.made.append(f"p{abs(hash(directory))}")
        return self.made[-1]

    def make(self, place: str, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        context = SinkContext(replace(spec, name=place), None, storage, Path(), fail)  # type: ignore[arg-type]
        return index_of(self.server.url, place).build(context)

    def held(self, place: str) -> list[Row]:
        return sorted((row["id"], row["text"]) for row in found(self.server, place).values())


class TestOpenSearch(_OfOpenSearch, SinkContract):
    def rows(self, place: str) -> list[Row]:
        return self.held(place)


class TestOpenSearchWithChanges(_OfOpenSearch, ChangesContract):
    def holds(self, place: str) -> Held:
        return dict(self.held(place))


def test_every_type_becomes_a_document(opensearch: OpenSearchServer) -> None:
    epochs = Epochs(index_of(opensearch.url, "types").build, spec_of("types", EVERY_TYPE, "id"))
    epochs.give(ROW, NULLS, {**NULLS, "id": 3, "d": math.nan})
    assert epochs.refused == []
    rows = found(opensearch, "types")
    first = rows["-9223372036854775808"]
    assert (first["id"], first["s"], first["raw"], first["money"]) == (ROW["id"], ROW["s"], "AP8NCg==", "0.0000000001")
    assert (first["at"], first["day"], first["nested"]) == ("2026-01-02T03:04:05.000600Z", "1969-12-31", ROW["nested"])
    assert (rows["2"]["s"], rows["3"]["d"]) == (None, None)
    asked = {"query": {"bool": {"must": [{"match": {"s": "END"}}, {"range": {"at": {"gte": "2026-01-01"}}}]}}}
    assert opensearch.ask("POST", "/types/_search", asked)["hits"]["total"]["value"] == 1


def test_hostile_keys_stay_apart_and_go_by_themselves(opensearch: OpenSearchServer) -> None:
    spec = spec_of("keys", "a string, b string, n int", "a", "b", updating=True)
    epochs = Epochs(index_of(opensearch.url, "keys").build, spec)
    odd = [*HOSTILE, "x" * 600]
    rows = [{"a": a, "b": b, "n": n} for n, (a, b) in enumerate((a, b) for a in odd for b in odd)]
    epochs.give(*rows)
    assert sorted(row["n"] for row in found(opensearch, "keys").values()) == list(range(len(rows)))
    epochs.give(*rows[::2], ops=[Op.DELETE] * len(rows[::2]))
    assert sorted(row["n"] for row in found(opensearch, "keys").values()) == list(range(1, len(rows), 2))


def test_a_row_that_the_mapping_refuses_becomes_a_dead_letter_or_stops_the_flow(opensearch: OpenSearchServer) -> None:
    for index in ("strict", "stopping"):
        opensearch.ask("PUT", f"/{index}", {"mappings": {"properties": {"size": {"type": "integer"}}}})
    spec = spec_of("strict", "id int, size string", "id")
    rows = [{"id": 1, "size": "38"}, {"id": 2, "size": "large"}, {"id": 3, "size": "40"}]
    epochs = Epochs(index_of(opensearch.url, "strict").build, spec)
    epochs.give(*rows)
    assert found(opensearch, "strict").keys() == {"1", "3"}
    assert [row["id"] for row in epochs.refused] == [2]
    assert "large" in epochs.refused[0]["__reason"]
    stopping = Epochs(index_of(opensearch.url, "stopping", on_error="stop").build, replace(spec, name="stopping"))
    with pytest.raises(SinkError, match="refuses a row"):
        stopping.give(*rows)


def test_an_index_gains_the_columns_of_its_flow_and_remembers_deletes(opensearch: OpenSearchServer) -> None:
    build = index_of(opensearch.url, "gains").build
    Epochs(build, spec_of("gains", "id int", "id")).give({"id": 1})
    Epochs(build, spec_of("gains", "id int, title string", "id"), generation=2).give({"id": 2, "title": "new"})
    assert found(opensearch, "gains") == {"1": {"id": 1}, "2": {"id": 2, "title": "new"}}
    asked = opensearch.ask("POST", "/gains/_search", {"query": {"match": {"title": "NEW"}}})
    assert asked["hits"]["total"]["value"] == 1
    assert opensearch.ask("GET", "/gains/_settings")["gains"]["settings"]["index"]["gc_deletes"] == "1d"


@pytest.mark.parametrize(
    ("url", "index"),
    [
        ("redis://host", "i"),
        ("http://", "i"),
        ("http://host?x=1", "i"),
        ("http://u:secret@host", "i"),
        *[("http://host", index) for index in ("Upper", "", "_i", "a,b", "../i", "penstock-marker")],
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(url: str, index: str) -> None:
    with pytest.raises(BadInput) as refused:
        index_of(url, index)
    assert "secret" not in str(refused.value)


def test_a_server_that_is_not_there_is_waited_for() -> None:
    with pytest.raises(SinkUnavailable):
        Epochs(index_of("http://127.0.0.1:1", "away").build, spec_of("away", "id int", "id"))
