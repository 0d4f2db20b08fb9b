"""Reads what a Parquet sink has written: the rows that count, or the files that hold them, as of the newest manifest."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import NotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.sinks.stores.files.parquet.manifest import Manifest
    from penstock.storage.port import Storage

_ATTEMPTS = 5


@dataclass(frozen=True)
class ParquetFiles:
    """The files that count as of one epoch. Where `deletes` is empty the rows of `data` are those of the table; else `sql` says
    which of them are."""

    epoch: int  # the last one that is in them; -1: none
    data: tuple[str, ...]
    deletes: tuple[str, ...]
    sql: str  # gives the rows, in DuckDB

    def __len__(self) -> int:
        return len(self.data) + len(self.deletes)


def read_parquet(directory: str | os.PathLike[str]) -> "pa.Table":
    """The rows that a `parquet` sink has delivered to this directory, as of its last epoch; no epoch is ever seen in part."""
    from penstock.storage.local import LocalStorage

    storage = LocalStorage(directory)
    for attempt in range(_ATTEMPTS):
        try:
            return rows_of(storage, _newest(storage, directory))
        except NotFound:  # a file that was replaced, and kept for as long as the sink was told
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def parquet_files(directory: str | os.PathLike[str]) -> ParquetFiles:
    """The files of the same rows, for DuckDB, Polars or Spark. They stay for the time that the sink's `keep` says."""
    from penstock.storage.local import LocalStorage

    manifest, root = _newest(LocalStorage(directory), directory), Path(directory).absolute()
    data = tuple(str(root / file.path) for file in manifest.data)
    deletes = tuple(str(root / file.path) for file in manifest.deletes)
    return ParquetFiles(manifest.marker.epoch if manifest.marker else -1, data, deletes, _sql(manifest, root))


def rows_of(storage: "Storage", manifest: "Manifest") -> "pa.Table":
    import pyarrow as pa

    from penstock.sinks.stores.files.parquet.files import read_deletes, read_rows, remaining

    deletes = read_deletes(storage, manifest.deletes, manifest.key) if manifest.deletes else None
    tables = [manifest.schema.arrow.empty_table()]
    for file in manifest.data:
        rows = read_rows(storage, file, manifest.schema)
        tables.append(rows if deletes is None else remaining(rows, file.sequence, deletes, manifest.key))
    return pa.concat_tables(tables)


def _newest(storage: "Storage", directory: str | os.PathLike[str]) -> "Manifest":
    from penstock.sinks.stores.files.parquet.manifest import Manifests

    found = Manifests(storage).newest()
    if found is None:
        raise NotFound(f"there is no manifest of a Parquet sink in {os.fspath(directory)}")
    return found


def _sql(manifest: "Manifest", root: Path) -> str:
    from penstock.sinks.stores.files.parquet.manifest import SEQUENCE

    columns = ", ".join(map(_quoted, manifest.schema.names))
    nothing = f"SELECT {', '.join(f'NULL AS {_quoted(name)}' for name in manifest.schema.names)}, 0 AS {SEQUENCE} WHERE false"
    by_sequence: dict[int, list[str]] = {}
    for file in manifest.data:
        by_sequence.setdefault(file.sequence, []).append(str(root / file.path))
    selects = [f"SELECT *, {sequence} AS {SEQUENCE} FROM {_scan(paths)}" for sequence, paths in by_sequence.items()]
    rows = " UNION ALL BY NAME ".join([nothing, *selects])
    if not manifest.deletes:
        return f"SELECT {columns} FROM ({rows})"
    same = " AND ".join(f"x.{_quoted(name)} IS NOT DISTINCT FROM d.{_quoted(name)}" for name in manifest.key)
    gone = f"SELECT 1 FROM {_scan([str(root / file.path) for file in manifest.deletes])} x"
    return f"SELECT {columns} FROM ({rows}) d WHERE NOT EXISTS ({gone} WHERE {same} AND x.{SEQUENCE} > d.{SEQUENCE})"


def _scan(paths: list[str]) -> str:
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
