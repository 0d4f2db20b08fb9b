"""What stands in an OpenSearch."""

from typing import Any

from penstock.testing.servers.opensearch import OpenSearchServer


def found(server: OpenSearchServer, index: str) -> dict[str, dict[str, Any]]:
    """Documents by their id."""
    server.ask("POST", f"/{index}/_refresh")
    answer = server.ask("POST", f"/{index}/_search", {"size": 10_000})
    hits = answer["hits"]["hits"] if "hits" in answer else []
    return {hit["_id"]: hit["_source"] for hit in hits}
