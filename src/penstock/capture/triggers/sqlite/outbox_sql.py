"""The SQL of an outbox in SQLite: its tables, and the triggers that fill it with values as they are.

Whoever writes to SQLite is alone, so that the order of the outbox is that of the commits. A row that REPLACE removes calls no
trigger of its own: before an insert or update, the rows that it may replace are noted down (`m`); behind it, those that are gone
have been deleted (`d`), and the notes of the others go. BEFORE triggers run also for rows that are then left out."""

from dataclasses import dataclass

from penstock.capture.sqlite.tables import SqliteTable, quoted

EVENTS = ("insert", "update", "delete")
_NOW = "cast((julianday('now') - 2440587.5) * 86400000000.0 as integer)"
_META = ("tbl", "op", "at")


@dataclass(frozen=True)
class SqliteOutboxSql:
    """The statements that make an outbox; all that it makes begins with its name."""

    name: str

    @property
    def outbox(self) -> str:
        return quoted(f"{self.name}_outbox")

    @property
    def shapes(self) -> str:
        return quoted(f"{self.name}_shapes")

    @property
    def about(self) -> str:
        return quoted(f"{self.name}_about")

    def tables(self, owner: str) -> list[str]:
        """Made once. owner: which capture's it is."""
        return [
            f"create table {self.outbox} (\n"
            "    seq integer primary key autoincrement, tbl integer not null, op text not null, at integer\n);",
            f"create index {quoted(f'{self.name}_maybe')} on {self.outbox} (tbl) where op = 'm';",
            f"create table {self.shapes} (id integer primary key, name text not null, columns text not null);",
            f"create table {self.about} (id text not null, owner text not null, windows integer not null);",
            f"insert into {self.about} values (lower(hex(randomblob(16))), '{owner}', 0);",
        ]

    def columns(self, there: int, wanted: int) -> list[str]:
        """Columns for old and new values, as many as the widest table needs; without a type, so that values stay as they are."""
        return [
            f"alter table {self.outbox} add column {side}{number};" for number in range(there, wanted) for side in ("old", "new")
        ]

    def triggers(self, of: SqliteTable, shape: int) -> list[str]:
        """For one table; shape: the number under which its columns are noted down."""
        made = [self._trigger(of, "after", event, self._behind(of, shape, event)) for event in EVENTS]
        if of.unique:
            made += [self._trigger(of, "before", event, self._maybes(of, shape, event)) for event in ("insert", "update")]
        return made

    def trigger(self, table: str, when: str, event: str) -> str:
        return f"{self.name}_{table}_{when}_{event}"

    def without(self, table: str) -> list[str]:
        names = [self.trigger(table, when, event) for when in ("after", "before") for event in EVENTS]
        return [f"drop trigger if exists {quoted(name)};" for name in names]

    def gone(self) -> list[str]:
        return [f"drop table if exists {table};" for table in (self.outbox, self.shapes, self.about)]

    def _trigger(self, of: SqliteTable, when: str, event: str, body: list[str]) -> str:
        statements = "\n".join(f"    {statement};" for statement in body)
        name = quoted(self.trigger(of.name, when, event))
        return f"create trigger {name} {when} {event} on {quoted(of.name)} for each row begin\n{statements}\nend;"

    def _behind(self, of: SqliteTable, shape: int, event: str) -> list[str]:
        sides = {"insert": ("new",), "update": ("old", "new"), "delete": ("old",)}[event]
        columns = [f"{side}{number}" for side in sides for number in range(len(of.columns))]
        values = [f"{side}.{quoted(name)}" for side in sides for name in of.columns]
        op = {"insert": "c", "update": "u", "delete": "d"}[event]
        noted = f"insert into {self.outbox} ({', '.join([*_META, *columns])}) values ({shape}, '{op}', {_NOW}, {', '.join(values)})"
        if not of.unique:
            return [noted]
        gone = f"update {self.outbox} set op = 'd' where op = 'm' and tbl = {shape} and not exists ({self._row(of)})"
        return [*([gone] if event != "delete" else []), self._forget(shape), noted]

    def _maybes(self, of: SqliteTable, shape: int, event: str) -> list[str]:
        """Notes down the rows that have a value, of a unique index, that the new row has too."""
        columns = ", ".join([*_META, *(f"old{number}" for number in range(len(of.columns)))])
        values = ", ".join(f"t.{quoted(name)}" for name in of.columns)
        same = " or ".join(
            "(" + " and ".join(f"t.{quoted(name)} = new.{quoted(name)} collate {quoted(by)}" for name, by in index) + ")"
            for index in of.unique
        )
        mine = " and ".join(f"t.{quoted(name)} is {'old' if event == 'update' else 'new'}.{quoted(name)}" for name in of.key)
        found = f"select {shape}, 'm', {_NOW}, {values} from {quoted(of.name)} t where ({same}) and not ({mine})"
        return [self._forget(shape), f"insert into {self.outbox} ({columns}) {found}"]

    def _row(self, of: SqliteTable) -> str:
        """The row of the table that a note is about."""
        same = " and ".join(f"t.{quoted(name)} is {self.outbox}.old{of.columns.index(name)}" for name in of.key)
        return f"select 1 from {quoted(of.name)} t where {same}"

    def _forget(self, shape: int) -> str:
        return f"delete from {self.outbox} where op = 'm' and tbl = {shape}"
