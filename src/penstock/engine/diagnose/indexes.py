"""What doctor says of the search indexes of a home."""

from collections.abc import Iterator
from pathlib import Path

from penstock.engine.diagnose.inspect import Finding, decisions_of, flows
from penstock.errors import NotFound, PenstockError
from penstock.sinks.stores.search.index import IndexMeta
from penstock.views.indexes import index_paths
from penstock.views.search import SearchIndex


def indexes(home: Path) -> Iterator[Finding]:
    """Each of them: whose it is, and whether it can be opened."""
    here = flows(home)
    for path in index_paths(home):
        try:
            with SearchIndex(path) as index:
                yield _of(home, path, index.meta, here)
        except NotFound as error:  # it was made, and nothing was delivered
            yield Finding("ok", f"search index {path.name}: nothing delivered yet", error.hint)
        except PenstockError as error:
            yield Finding("bad", f"search index {path.name}: {error.what}", error.hint)


def _of(home: Path, path: Path, meta: IndexMeta, here: list[str]) -> Finding:
    if meta.flow not in here:
        return Finding(
            "warn",
            f"search index {path.name}: its flow {meta.flow} is not here",
            f"nobody writes it; to be rid of it, remove {path}",
        )
    written = {output.get("id") for output in decisions_of(home, meta.flow).owner().get("outputs") or ()}
    if not written & {f"search.{meta.name}", f"tantivy.{meta.name}"}:
        what = f"search index {path.name}: flow {meta.flow} does not write it any more"
        return Finding("warn", what, f"to be rid of it, remove {path}")
    return Finding("ok", f"search index {path.name}: {', '.join(meta.text)} of flow {meta.flow}")
