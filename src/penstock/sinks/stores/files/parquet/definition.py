"""`parquet(…)`: a directory of Parquet files as a sink."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from penstock.core.time import duration
from penstock.errors import BadInput
from penstock.sinks.stores.arguments import names
from penstock.sinks.stores.definition import StoreDefinition

if TYPE_CHECKING:
    from penstock.sinks.port import SinkContext, SinkSpec
    from penstock.sinks.stores.port import Store


@dataclass(frozen=True)
class ParquetDefinition(StoreDefinition):
    """`stream.sink(parquet(…))`"""

    directory: str
    key: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] = ()
    keep: timedelta = timedelta(minutes=10)

    kind: ClassVar[str] = "parquet"

    @property
    def target(self) -> str:
        return PurePath(self.directory).name

    def emptied(self, flow: str, name: str) -> str:
        return f"remove the directory {os.path.abspath(self.directory)}"

    def store(self, context: "SinkContext") -> "Store":
        from penstock.sinks.stores.files.parquet.store import ParquetStore
        from penstock.storage.local import LocalStorage

        check_partitions(self, context.spec)
        return ParquetStore(self, context.spec, LocalStorage(self.directory))


def parquet(
    directory: str | os.PathLike[str],
    *,
    key: str | Iterable[str] | None = None,
    partition_by: str | Iterable[str] = (),
    keep: timedelta | str = "10 minutes",
) -> ParquetDefinition:
    """A directory of Parquet files: `sales.sink(parquet("lake/sales", partition_by="country"))`.

    A manifest says which files count; `read_parquet` and `parquet_files` go by it. `key` names the columns that tell rows apart;
    left out, they are those of the step, and rows that have none are appended. `partition_by` names columns whose values have
    directories of their own. Small files are merged in the background; those that were replaced stay for `keep`, for readers that
    are at them."""
    given, time = names(partition_by) or (), duration(keep)
    if len(set(given)) < len(given):
        raise BadInput("partition_by names a column twice", ", ".join(given))
    return ParquetDefinition(os.fspath(directory), names(key), given, time)


def check_partitions(definition: ParquetDefinition, spec: "SinkSpec") -> None:
    """Refuses columns whose values do not make names of directories."""
    import pyarrow as pa

    for name in definition.partition_by:
        if name not in spec.schema:
            raise BadInput(f"partition_by names {name!r}, which is no column", hint=f"there are {', '.join(spec.schema.names)}")
        t = spec.schema.type(name)
        if not (pa.types.is_string(t) or pa.types.is_integer(t) or pa.types.is_boolean(t) or pa.types.is_date(t)):
            raise BadInput(
                f"partition_by names {name!r}, which is no string, whole number, boolean or date", hint="select it as one of these"
            )
