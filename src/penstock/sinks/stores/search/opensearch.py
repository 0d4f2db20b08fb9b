"""An index of an OpenSearch or Elasticsearch, kept in step: documents with the epoch as their version, then the marker.

It has no transactions. Documents of an epoch become visible before its marker, some before others; a repetition changes nothing,
and an older version never replaces a newer one."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock.errors import BadInput, SinkError, SinkUnavailable
from penstock.sinks.port import Marker, SinkSpec
from penstock.sinks.stores.arguments import OnError, names, one_of
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.places import Password, Place
from penstock.sinks.stores.port import Changes, Note, Refusal
from penstock.sinks.stores.search.opensearch_http import PORT, Address, Client, reason_of, segment
from penstock.sinks.stores.search.opensearch_rows import VersionKind, deletes, documents_read, mapping_of, puts, requests

if TYPE_CHECKING:
    from penstock.sinks.port import SinkContext
    from penstock.sinks.stores.port import Store

MARKERS = "penstock-marker"  # the index with the markers of all sinks
KEPT_DELETES = "1d"  # how long a deleted document's version is remembered; 60 seconds if nobody says more
_FETCHED = 5_000  # documents that are read at one time
_CONFLICT = 409  # somebody was faster; of a document: this version, or a newer one, is there


@dataclass(frozen=True)
class OpenSearchDefinition(StoreDefinition):
    """`stream.sink(opensearch(…))`"""

    url: str = field(repr=False)
    index: str
    key: tuple[str, ...] | None = None
    password: str | None = None
    on_error: OnError = "dead"

    kind: ClassVar[str] = "opensearch"

    @property
    def target(self) -> str:
        return self.index

    def emptied(self, flow: str, name: str) -> str:
        return f"in {Place.of(self.url, 'OpenSearch', PORT)}: DELETE /{self.index}, and DELETE {_marker(flow, name)}"

    def store(self, context: "SinkContext") -> "Store":
        return OpenSearchStore(self, context.spec)


def opensearch(
    url: str,
    index: str,
    *,
    key: str | Iterable[str] | None = None,
    password: str | None = None,
    on_error: OnError = "dead",
) -> OpenSearchDefinition:
    """An index of an OpenSearch or Elasticsearch: `products.sink(opensearch("https://shop@search:9200", "products"))`.

    `index` is made where it is missing, with a mapping for each column; it gains those that the flow gains. `key` names the columns
    that tell rows apart, and are the id of a document; left out, they are those of the step, or the row's position. `on_error`: a
    row that the index refuses (its mapping) becomes a dead letter, or stops the flow. Needs the extra `search`."""
    Address.of(url)
    Password(password, Place.of(url, "OpenSearch", PORT))
    if not isinstance(index, str) or not index or index == MARKERS or set(index) & set(' "*\\<|,>/?#:') or index[0] in "_-+.":
        raise BadInput(f"{index!r} is no name of an index", hint="lower-case letters, digits, - and _")
    if index != index.lower():
        raise BadInput(f"{index!r} is no name of an index", hint=f"it has to be in lower case: {index.lower()}")
    one_of("on_error", on_error, OnError)
    return OpenSearchDefinition(url, index, names(key), password, on_error)


def _marker(flow: str, sink: str) -> str:
    """The document with the marker of a sink."""
    return f"/{MARKERS}/_doc/{sha256(f'{flow}/{sink}'.encode()).hexdigest()}"


class OpenSearchStore:
    """One index. client: how a client is made."""

    def __init__(self, definition: OpenSearchDefinition, spec: SinkSpec, client: type[Client] = Client) -> None:
        self._definition, self._make, self.spec = definition, client, spec
        self._place = Place.of(definition.url, "OpenSearch", PORT)
        self._client: Client | None = None

    @property
    def called(self) -> str:
        return f"index {self._definition.index} of {self._place}"

    def open(self) -> None:
        self.close()
        definition = self._definition
        self._client = self._make(Address.of(definition.url), Password(definition.password, self._place), self._place)
        marker = {"dynamic": False, "properties": {"epoch": {"type": "long"}}}
        self._ensure(self._client, MARKERS, marker, {})
        columns = mapping_of(self.spec.schema, self.spec.key)
        settings = {"gc_deletes": KEPT_DELETES, "translog.durability": "request"}
        self._ensure(self._client, definition.index, {"dynamic": False, "properties": columns}, settings)
        self._add_columns(self._client, columns)

    @contextmanager
    def transaction(self) -> "Iterator[OpenSearchTransaction]":
        if self._client is None:
            raise SinkError(f"{self.called} is not open", hint="call open() first")
        transaction = OpenSearchTransaction(self._client, self._definition.index, self)
        yield transaction
        transaction.commit()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _ensure(self, client: Client, index: str, mappings: dict[str, Any], settings: dict[str, Any]) -> None:
        """Makes the index where it is missing."""
        path = f"/{segment(index)}"
        if client.ask("GET", f"{path}/_settings", allowed=(404,)).status != 404:
            return
        answer = client.ask("PUT", path, {"settings": {"index": settings}, "mappings": mappings}, allowed=(400,))
        if answer.status == 400 and answer.body.get("error", {}).get("type") != "resource_already_exists_exception":
            raise SinkError(f"{self.called} cannot be made", reason_of(answer.body))

    def _add_columns(self, client: Client, columns: dict[str, Any]) -> None:
        path = f"/{segment(self._definition.index)}/_mapping"
        (found,) = client.ask("GET", path).body.values()
        there = found.get("mappings", {}).get("properties", {})
        if new := {name: mapping for name, mapping in columns.items() if name not in there}:
            client.ask("PUT", path, {"properties": new})


class OpenSearchTransaction:
    """Documents are written at once, the marker when the block ends well, if nobody has written it meanwhile."""

    one_moment = False

    def __init__(self, client: Client, index: str, store: OpenSearchStore) -> None:
        self._client, self._index, self._store, self._spec = client, index, store, store.spec
        self._seen: dict[str, Any] = {"op_type": "create"}  # what must hold of the marker when it is written
        self._versions: VersionKind = "external"
        self._kept: Note | None = None

    @property
    def _marker(self) -> str:
        return _marker(self._spec.flow, self._spec.name)

    def note(self) -> Note | None:
        answer = self._client.ask("GET", self._marker, allowed=(404,))
        if answer.status == 404 or not answer.body.get("found"):
            return None
        try:
            found = answer.body["_source"]
            marker = Marker(found["incarnation"], found["generation"], found["epoch"])
            self._seen = {"if_seq_no": answer.body["_seq_no"], "if_primary_term": answer.body["_primary_term"]}
            return Note(marker, base64.b64decode(found["refused"]))
        except (KeyError, TypeError, ValueError) as error:
            raise SinkError(f"the marker of {self._store.called} cannot be read", f"it has {answer.body!r}"[:500]) from error

    def write(self, changes: Changes) -> Sequence[Refusal]:
        """The version of a document is that of the last epoch it is written with. An attempt that got no marker may have written
        fewer epochs, or more, than this one: what is newer stands."""
        version = changes.epoch + 1
        for part in requests(deletes(changes.gone, self._spec.key, version, self._versions)):
            for wrong in self._bulk(part).values():
                raise SinkError(f"{self._store.called} does not delete a document: {wrong}")
        refusals, start = list[Refusal](), 0
        for part in requests(puts(changes.put, self._spec, version, self._versions)):
            refusals += [Refusal(start + row, reason) for row, reason in self._bulk(part).items()]
            start += len(part)
        return refusals

    def keep(self, note: Note) -> None:
        self._kept = note

    def mending(self) -> None:
        self._versions = "external_gte"

    def rows(self) -> Iterator[pa.Table]:
        """What a search finds: the index is refreshed first."""
        index = segment(self._index)
        self._client.ask("POST", f"/{index}/_refresh")
        found = self._client.ask("POST", f"/{index}/_search?scroll=5m", {"size": _FETCHED, "sort": ["_doc"]}).body
        while hits := found["hits"]["hits"]:
            yield documents_read(hits, self._spec)
            found = self._client.ask("POST", "/_search/scroll", {"scroll": "5m", "scroll_id": found["_scroll_id"]}).body
        self._client.ask("DELETE", "/_search/scroll", {"scroll_id": [found["_scroll_id"]]}, allowed=(404,))

    def commit(self) -> None:
        if self._kept is None:
            return
        marker = self._kept.marker
        body = {
            "flow": self._spec.flow,
            "sink": self._spec.name,
            "incarnation": marker.incarnation,
            "generation": marker.generation,
        }
        body |= {"epoch": marker.epoch, "refused": base64.b64encode(self._kept.refused).decode()}
        seen = "&".join(f"{name}={value}" for name, value in self._seen.items())
        if self._client.ask("PUT", f"{self._marker}?{seen}", body, allowed=(_CONFLICT,)).status == _CONFLICT:
            raise SinkUnavailable(f"{self._store.called} was written by another driver at the same moment")

    def _bulk(self, part: Sequence[bytes]) -> dict[int, str]:
        """What the index refuses, by its place in the request. A version that is there already is no refusal."""
        answer = self._client.ask("POST", f"/{segment(self._index)}/_bulk", b"".join(part))
        refused = {}
        for i, item in enumerate(answer.body["items"] if answer.body["errors"] else ()):
            (result,) = item.values()
            if "error" not in result or (result["status"] == _CONFLICT and self._versions == "external"):
                continue
            if result["status"] == _CONFLICT:  # somebody else has written it since, and its number is ahead of the epochs'
                refused[i] = f"it was changed beside the flow: {reason_of(result)}"
                continue
            if result["status"] != 400:
                raise SinkUnavailable(f"{self._store.called} cannot take an epoch: {result['status']}", reason_of(result))
            refused[i] = reason_of(result)
        return refused
