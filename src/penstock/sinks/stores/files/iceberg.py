"""An Iceberg table, kept in step: each epoch is one commit of the catalog, with the marker as a property of the table inside."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import orjson
import pyarrow as pa

from penstock.core.time import duration
from penstock.errors import BadInput, SinkError, SinkUnavailable, install
from penstock.log.kafka.secrets import check_reference, secret
from penstock.sinks.port import Marker, SinkSpec
from penstock.sinks.stores.arguments import names
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.files.iceberg_tables import arrow_schema, fit, matching, without
from penstock.sinks.stores.places import SECRET, Place
from penstock.sinks.stores.port import Changes, Note, Refusal

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from penstock.sinks.port import SinkContext
    from penstock.sinks.stores.port import Store

# Of a table that is made: every epoch leaves a metadata file, of which the last ones are enough.
_MADE = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "20"}
MOST_SNAPSHOTS = 100  # older ones expire then: every metadata file lists all of them
RETRIES = "commit.retry.num-retries"


@dataclass(frozen=True)
class IcebergDefinition(StoreDefinition):
    """`stream.sink(iceberg(…))`"""

    catalog: str
    table: str
    key: tuple[str, ...] | None = None
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    keep: timedelta = timedelta(minutes=10)

    kind: ClassVar[str] = "iceberg"

    @property
    def target(self) -> str:
        return self.table

    def emptied(self, flow: str, name: str) -> str:
        return f"drop the Iceberg table {self.table} of catalog {self.catalog}"

    def store(self, context: "SinkContext") -> "Store":
        return IcebergStore(self, context.spec)


def iceberg(
    catalog: str,
    table: str,
    *,
    key: str | Iterable[str] | None = None,
    properties: Mapping[str, str] | None = None,
    keep: timedelta | str = "10 minutes",
) -> IcebergDefinition:
    """An Iceberg table: `sales.sink(iceberg("lake", "shop.sales", properties={"type": "sql", "uri": "sqlite:///lake.db", …}))`.

    `catalog` is its name, `properties` are those of PyIceberg; what they leave out comes from its own configuration. Secrets are
    given by reference: `"env:NAME"`. Namespace and `table` are made where they are missing; the table gains columns that the flow
    gains. `key` names the columns that tell rows apart; left out, they are those of the step, and rows that have none are
    appended. Snapshots older than `keep` expire when there are more than a hundred. Needs the extra `iceberg`."""
    if table.count(".") < 1 or not all(table.split(".")):
        raise BadInput(f"{table!r} is no name of an Iceberg table", hint="write it with its namespace, like shop.sales")
    for name, value in (properties or {}).items():
        if SECRET.search(name):
            check_reference(name, value)
    Place.of((properties or {}).get("uri", ""), "catalog")
    return IcebergDefinition(catalog, table, names(key), tuple(sorted((properties or {}).items())), duration(keep))


class IcebergStore:
    """One table. Every commit makes a snapshot behind the one whose marker was read, or fails."""

    def __init__(self, definition: IcebergDefinition, spec: SinkSpec) -> None:
        self._definition, self._spec = definition, spec
        self._catalog: Catalog | None = None
        self._table: Table | None = None

    @property
    def called(self) -> str:
        return f"Iceberg table {self._definition.table} of catalog {self._definition.catalog}"

    def open(self) -> None:
        self.close()
        with self._translated("be opened"):
            self._catalog = self._loaded()
            name = self._definition.table
            self._catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            wanted = arrow_schema(self._spec.schema)
            self._table = self._catalog.create_table_if_not_exists(name, schema=wanted, properties=_MADE)
            fit(self._table, wanted, self.called)

    @contextmanager
    def transaction(self) -> Iterator["IcebergTransaction"]:
        if self._table is None:
            raise SinkError(f"{self.called} is not open", hint="call open() first")
        with self._translated("take an epoch"):
            self._table.refresh()
            transaction = IcebergTransaction(self._table, self._spec)
            yield transaction
            transaction.commit()
            if len(self._table.metadata.snapshots) > MOST_SNAPSHOTS:
                expired = datetime.now(UTC) - self._definition.keep
                self._table.maintenance.expire_snapshots().older_than(expired).commit()

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
        self._catalog = self._table = None

    def _loaded(self) -> "Catalog":
        _library()
        from pyiceberg.catalog import load_catalog

        given = {
            name: secret(value, f"{name} of {self.called}") if SECRET.search(name) else value
            for name, value in self._definition.properties
        }
        return load_catalog(self._definition.catalog, **given)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        errors = _library().exceptions
        try:
            yield
        except errors.CommitFailedException as error:
            raise SinkUnavailable(f"{self.called} was written by somebody else meanwhile", str(error)) from error
        except (errors.CommitStateUnknownException, errors.RESTError, OSError) as error:
            raise SinkUnavailable(f"{self.called} cannot {doing} now", *str(error).splitlines()[:3]) from error
        except (ValueError, errors.ValidationError) as error:
            raise SinkError(f"{self.called} cannot {doing}", *str(error).splitlines()[:20]) from error
        except Exception as error:
            if not type(error).__module__.startswith("sqlalchemy."):  # what catalogs in SQL raise: locked, or not reached
                raise
            raise SinkUnavailable(f"{self.called} cannot {doing} now", *str(error).splitlines()[:3]) from error


class IcebergTransaction:
    """Notes what is to be done; `commit` does it, as one commit of the catalog."""

    one_moment = True

    def __init__(self, table: "Table", spec: SinkSpec) -> None:
        self._table, self._spec = table, spec
        self._property = f"penstock.{spec.flow}/{spec.name}"
        self._changes: Changes | None = None
        self._note: Note | None = None

    def note(self) -> Note | None:
        found = self._table.metadata.properties.get(self._property)
        return Note(Marker(**orjson.loads(found))) if found else None

    def write(self, changes: Changes) -> Sequence[Refusal]:
        self._changes = changes
        return ()

    def rows(self) -> Iterator[pa.Table]:
        yield self._table.scan(selected_fields=tuple(self._spec.schema.names)).to_arrow()

    def keep(self, note: Note) -> None:
        self._note = note

    def commit(self) -> None:
        """A marker alone is committed with a snapshot, too, of no rows: that there is none behind the one that was read is what
        the catalog checks. PyIceberg would move a commit that fails behind the snapshot it has met; in this process it must not."""
        if self._changes is None and self._note is None:
            return
        self._table.metadata.properties[RETRIES] = "0"
        with self._table.transaction() as transaction:
            put = self._rows(self._changes.put) if self._changes else self._rows(self._spec.schema.arrow.empty_table())
            keys = self._keys()
            wanted = matching(keys) if keys else ""
            found = self._table.scan(wanted).to_arrow().cast(put.schema) if wanted else put.slice(0, 0)
            if keys and found.num_rows:
                transaction.overwrite(pa.concat_tables([put, without(found, keys)]), wanted)
            else:
                transaction.append(put)
            if self._note:
                transaction.set_properties({self._property: orjson.dumps(self._note.marker).decode()})

    def _keys(self) -> pa.Table | None:
        """Of rows that go or are replaced; None where there are none."""
        if not self._changes or not self._spec.key or self._table.current_snapshot() is None:
            return None
        replaced = [] if self._spec.unique else [self._changes.put]
        keys = pa.concat_tables([rows.select(list(self._spec.key)) for rows in (self._changes.gone, *replaced)])
        return keys if keys.num_rows else None

    def _rows(self, rows: pa.Table) -> pa.Table:
        """In the columns and types of the table."""
        schema = self._table.schema().as_arrow()
        columns = [rows[f.name].cast(f.type) if f.name in self._spec.schema else pa.nulls(rows.num_rows, f.type) for f in schema]
        return pa.table(columns, schema=schema)


def _library() -> Any:
    try:
        import pyiceberg
        import pyiceberg.exceptions
    except ImportError as error:
        raise SinkError("the library of Iceberg tables is not installed", hint=install("'pyiceberg[sql-sqlite]'")) from error
    return pyiceberg
