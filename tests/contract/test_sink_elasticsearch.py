"""An index of a real Elasticsearch as a sink: the suites of OpenSearch's, and what rows look like there."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract import test_sink_opensearch as of_opensearch

from certificates import certified
from opensearch_documents import found
from penstock.errors import SinkError, SinkUnavailable
from penstock.sinks import opensearch as index_of
from penstock.testing.servers.fixtures import missing
from penstock.testing.servers.jars import NotToBeHad
from penstock.testing.servers.opensearch import ELASTICSEARCH, ElasticsearchServer, Guard
from store_epochs import Epochs, spec_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=ELASTICSEARCH)
def opensearch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElasticsearchServer]:
    """In place of the fixture that the tests of OpenSearch ask for."""
    server = ElasticsearchServer(tmp_path_factory.mktemp("elasticsearch"), request.param)
    try:
        server.start()
    except NotToBeHad as error:
        missing(str(error))
    yield server
    server.stop()


class TestElasticsearch(of_opensearch.TestOpenSearch):
    pass


class TestElasticsearchWithChanges(of_opensearch.TestOpenSearchWithChanges):
    pass


@pytest.mark.parametrize(
    "test",
    [
        of_opensearch.test_every_type_becomes_a_document,
        of_opensearch.test_hostile_keys_stay_apart_and_go_by_themselves,
        of_opensearch.test_a_row_that_the_mapping_refuses_becomes_a_dead_letter_or_stops_the_flow,
        of_opensearch.test_an_index_gains_the_columns_of_its_flow_and_remembers_deletes,
    ],
    ids=lambda test: test.__name__,
)
def test_rows_stand_there_as_in_opensearch(test: Any, opensearch: ElasticsearchServer) -> None:
    test(opensearch)


ROLES = """
all: {cluster: [all], indices: [{names: ["*"], privileges: [all]}]}
writer: {indices: [{names: [guarded, penstock-marker], privileges: [manage, read, write]}]}
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[ElasticsearchServer]:
    users = {"admin": ("tell-nobody", "all"), "shop": ("tell-nobody-else", "writer")}
    server = ElasticsearchServer(tmp_path, guard=Guard(certified(tmp_path, "localhost", "127.0.0.1"), users, ROLES))
    try:
        server.start()
    except NotToBeHad as error:
        missing(str(error))
    yield server
    server.stop()


def test_rows_go_over_tls_under_a_user_who_may_write_the_index_and_no_other(
    guarded: ElasticsearchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = guarded.url.replace("//", "//shop@") + f"?ca={tmp_path}/localhost.pem"
    spec = spec_of("guarded", "id int, name string", "id")
    monkeypatch.setenv("SEARCH_PASSWORD", "tell-nobody-else")
    Epochs(index_of(url, "guarded", password="env:SEARCH_PASSWORD").build, spec).give({"id": 1, "name": "ann"})
    assert found(guarded, "guarded") == {"1": {"id": 1, "name": "ann"}}
    with pytest.raises(SinkError, match="refuses GET /other/_settings: 403") as refused:
        Epochs(index_of(url, "other", password="env:SEARCH_PASSWORD").build, replace(spec, name="other"))
    assert "penstock-marker" in str(refused.value.hint)
    monkeypatch.setenv("SEARCH_PASSWORD", "tell-nobody-at-all")
    with pytest.raises(SinkError, match="401") as unknown:
        Epochs(index_of(url, "guarded", password="env:SEARCH_PASSWORD").build, spec)
    for error in (refused, unknown):
        assert not isinstance(error.value, SinkUnavailable)
        assert "tell-nobody" not in str(error.value)
