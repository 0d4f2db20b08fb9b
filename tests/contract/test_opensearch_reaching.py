"""How an OpenSearch is reached: TLS, users, and what is said where that goes wrong.

The distribution that tests can have comes without the security plugin. A front with TLS and basic authentication stands for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from certificates import certified
from https_front import another_server, https_before
from opensearch_documents import found
from penstock.errors import SinkError, SinkUnavailable
from penstock.sinks import opensearch as index_of
from penstock.testing.servers.opensearch import OpenSearchServer
from store_epochs import Epochs, spec_of

SPEC = spec_of("reached", "id int, name string", "id")
SECRET = "tell-nobody:not-even-with-a-colon"


@pytest.fixture
def front(opensearch: OpenSearchServer, tmp_path: Path) -> Iterator[str]:
    """The host and port of the front, whose certificate is localhost.pem."""
    with https_before(opensearch.url, "shop", SECRET, certified(tmp_path, "localhost", "127.0.0.1")) as (port, _):
        yield f"localhost:{port}"


def test_rows_go_over_tls_under_a_name_and_a_password(
    front: str, opensearch: OpenSearchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_PASSWORD", SECRET)
    ours = index_of(f"https://shop@{front}?ca={tmp_path}/localhost.pem", "reached", password="env:SEARCH_PASSWORD")
    Epochs(ours.build, SPEC).give({"id": 1, "name": "ann"})
    assert found(opensearch, "reached") == {"1": {"id": 1, "name": "ann"}}
    assert SECRET not in repr(ours)


@pytest.mark.parametrize("given", ["wrong", None])
def test_a_wrong_password_is_said_and_not_shown(
    given: str | None, front: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_PASSWORD", given or "")
    password = None if given is None else "env:SEARCH_PASSWORD"
    ours = index_of(f"https://shop@{front}?ca={tmp_path}/localhost.pem", "reached", password=password)
    with pytest.raises(SinkError, match=r"refuses GET /penstock-marker/_settings: 401") as refused:
        Epochs(ours.build, SPEC)
    assert not isinstance(refused.value, SinkUnavailable), "waiting would not help"
    assert "password" in str(refused.value.hint)
    assert "wrong" not in str(refused.value)


def test_a_password_that_is_wrong_from_now_on_stops_the_flow(front: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_PASSWORD", SECRET)
    ours = index_of(f"https://shop@{front}?ca={tmp_path}/localhost.pem", "changed", password="env:SEARCH_PASSWORD")
    epochs = Epochs(ours.build, spec_of("changed", "id int", "id"))
    monkeypatch.setenv("SEARCH_PASSWORD", "another one")
    with pytest.raises(SinkError, match="401") as refused:
        epochs.give({"id": 1})
    assert "another one" not in str(refused.value)


@pytest.mark.parametrize("wrong", ["no authority", "another authority", "another name"])
def test_a_server_that_cannot_prove_who_it_is_gets_nothing(
    wrong: str, opensearch: OpenSearchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_PASSWORD", SECRET)
    right = certified(tmp_path, "search.example" if wrong == "another name" else "localhost")
    authority = {"no authority": "", "another authority": f"?ca={certified(tmp_path, 'other')}"}.get(wrong, f"?ca={right}")
    with https_before(opensearch.url, "shop", SECRET, right) as (port, seen):
        ours = index_of(f"https://shop@localhost:{port}{authority}", "reached", password="env:SEARCH_PASSWORD")
        with pytest.raises(SinkUnavailable, match=r"does not answer[\s\S]*certificate verify failed") as refused:
            Epochs(ours.build, SPEC)
    assert seen == [], "the password was not sent"
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(("status", "kind"), [(200, SinkError), (502, SinkUnavailable), (403, SinkError)])
def test_what_is_no_opensearch_is_told_by_what_it_says(status: int, kind: type[SinkError]) -> None:
    match = r"OpenSearch 127\.0\.0\.1:\d+ (is none|refuses)[\s\S]*<html> Welcome </html>"
    with another_server(status, b"<html>\n  Welcome\n</html>") as url, pytest.raises(kind, match=match) as told:
        Epochs(index_of(url, "reached").build, SPEC)
    assert isinstance(told.value, SinkUnavailable) == (status == 502)
