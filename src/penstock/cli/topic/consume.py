"""penstock topic consume: rows of a topic as a table, JSON lines or CSV."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import click
import orjson
import pyarrow as pa

from penstock.cli.output import csv_line, inert, is_text, kind_of, print_table, safe
from penstock.cli.table import Writer
from penstock.cli.topic.rows import META, Rows, as_object, parsed, rows_of
from penstock.cli.topic.where import Condition
from penstock.core.columns import (
    KEY,
    SHOWN_APPEND_TIME,
    SHOWN_HEADERS,
    SHOWN_KEY,
    SHOWN_OFFSET,
    SHOWN_OP,
    SHOWN_PARTITION,
    SHOWN_TIME,
)
from penstock.core.time import instant
from penstock.errors import BadInput, BadTime
from penstock.log.consumer import Where, last_rows, output_names, read
from penstock.log.intake.deletes import delete_line
from penstock.log.intake.rows_in import key_columns
from penstock.log.intake.text import encode_json, json_values
from penstock.log.port import Topic, TopicSpec

TABLE_ROWS = 1000  # a table is laid out as a whole: a longer one is printed in parts
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True)
class Order:
    """What to read."""

    start: str = "earliest"
    stop: str | None = None
    most: int | None = None
    follow: bool = False
    where: str | None = None
    partition: int | None = None
    last: int | None = None


def place(text: str, option: str) -> Where:
    """`earliest`, `latest`, an offset or a time, as the user wrote it."""
    if text == "earliest" or text == "latest":
        return "earliest" if text == "earliest" else "latest"
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        return instant(text)
    except BadTime:
        hint = "give earliest, latest, an offset or a time like 2024-01-15T10:30:00Z"
        raise BadInput(f"{option} {text!r} is no place in a topic", hint=hint) from None


def _start(topic: Topic, order: Order) -> Where:
    if order.last is None:
        return place(order.start, "--from")
    if order.start != "earliest":
        raise BadInput("--last and --from exclude each other", hint="--last 10 begins ten rows before the end of each partition")
    return last_rows(topic, order.last, None if order.partition is None else [order.partition])


def chosen_rows(topic: Topic, order: Order) -> Iterator[Rows]:
    """The rows asked for, those of a frame at a time."""
    choose = _Choice(topic.spec, order.where) if order.where else None
    start, stop = _start(topic, order), place(order.stop, "--to") if order.stop else None if order.follow else "latest"
    partitions = None if order.partition is None else [order.partition]
    left = order.most
    for table in read(topic, partitions=partitions, start=start, stop=stop, follow=order.follow):
        for rows in choose(table) if choose else [rows_of(table, topic.spec)]:
            if rows.count:
                yield rows.first(left)
            left = None if left is None else left - min(left, rows.count)
            if left == 0:
                break
        if left == 0:
            break
    if choose and choose.skipped:
        click.echo(f"{choose.skipped:,} rows were left out: their fields cannot be compared like this", err=True)


class _Choice:
    """The rows that meet a condition. The values of a raw topic may be of any type: those that cannot be compared are counted."""

    def __init__(self, spec: TopicSpec, where: str) -> None:
        self._spec, self._condition, self.skipped = spec, _condition(spec, where), 0

    def __call__(self, table: pa.Table) -> Iterator[Rows]:
        rows = rows_of(table, self._spec)
        try:
            yield rows.take(self._condition.places(rows.table))
        except BadInput:
            if self._spec.schema:
                raise
            if rows.count == 1:
                self.skipped += 1
                return
            for i in range(rows.count):  # each with the types of its own fields
                yield from self(table.slice(i, 1))


def _condition(spec: TopicSpec, where: str) -> Condition:
    names = output_names(spec)
    own = [f.name for f in spec.schema if pa.types.is_timestamp(f.type)] if spec.schema else []
    condition = Condition(where, [*own, names[SHOWN_TIME], names[SHOWN_APPEND_TIME]])
    there = [*spec.schema.names, *names.values()] if spec.schema else condition.columns
    for name in condition.columns:
        if name not in there:
            raise BadInput(f"topic {spec.name} has no column {name!r}", f"there are {', '.join(there)}")
    return condition


@dataclass(frozen=True)
class Out:
    """Where lines go. A terminal gets no characters that would steer it."""

    stream: BinaryIO
    terminal: bool

    def write(self, lines: list[bytes]) -> None:
        if self.terminal:
            lines = [safe(line.decode("utf-8", "backslashreplace")).encode() for line in lines]
        self.stream.write(b"\n".join(lines) + b"\n")
        self.stream.flush()


def consume_to(topic: Topic, order: Order, output: str | None, meta: bool | None) -> None:
    """Prints the rows on standard output until there are no more, or Ctrl-C ends it."""
    output = kind_of(output)
    out, chosen = Out(sys.stdout.buffer, sys.stdout.isatty()), chosen_rows(topic, order)
    try:
        if output == "jsonl":
            write_jsonl(chosen, out, bool(meta))
        elif output == "csv":
            write_csv(chosen, out, bool(meta), topic.spec.changelog)
        else:
            write_tables(chosen, topic.spec, meta is not False, order.follow)
    except KeyboardInterrupt:
        if not order.follow:  # the way to end following; else something is missing
            raise


def write_jsonl(chosen: Iterator[Rows], out: Out, meta: bool) -> None:
    """A JSON object a row: its own columns, or the stored text of a raw topic; with meta, position, times, key and headers too.
    Deletes are lines that `produce` reads as deletes."""
    for rows in chosen:
        if meta or rows.values is None:
            lines = encode_json(rows.table if meta else rows.table.select(rows.own))
        else:
            lines = [_stored(value) for value in rows.values.to_pylist()]
        for i in rows.gone if not meta else ():
            lines[i] = _deleted(rows, i)
        out.write(lines)


def _deleted(rows: Rows, i: int) -> bytes:
    """What is known of a row that is gone: its columns; in a raw topic its key."""
    if rows.values is not None:
        return delete_line({KEY: rows.meta(SHOWN_KEY)[i].as_py()})
    own = rows.table.select(rows.own).slice(i, 1)
    return delete_line({name: json_values(own.column(name))[0] for name in own.column_names})


def _stored(value: bytes | None) -> bytes:
    """The stored text as it is, where it is one line of JSON."""
    if value is not None and b"\n" not in value and parsed(value) is not None:
        return value
    return orjson.dumps(as_object(value))


@dataclass
class CsvWriter:
    """CSV with the columns of the first rows; fields that come later are told, not written."""

    out: Out
    meta: bool
    changes: bool = False
    header: list[str] = field(default_factory=list)
    left_out: set[str] = field(default_factory=set)

    def write(self, rows: Rows) -> None:
        names = rows.table.schema.names if self.meta else [*rows.own, *([rows.op] if self.changes or rows.gone else [])]
        lines = []
        if not self.header:
            self.header = names
            lines.append(csv_line(inert(name) for name in names))
        self.left_out |= set(names) - set(self.header)
        columns = [self._cells(rows.table, name) for name in self.header]
        lines += [csv_line(row) for row in zip(*columns, strict=True)]
        self.out.write("".join(lines).encode().removesuffix(b"\n").split(b"\n"))

    def _cells(self, table: pa.Table, name: str) -> list[object]:
        if name not in table.schema.names:
            return [None] * int(table.num_rows)
        cells = [_cell(value) for value in json_values(table.column(name))]
        return [inert(cell) if isinstance(cell, str) else cell for cell in cells] if is_text(table.field(name).type) else cells


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return orjson.dumps(value).decode() if isinstance(value, dict | list) else value


def write_csv(chosen: Iterator[Rows], out: Out, meta: bool, changes: bool = False) -> None:
    """changes: the topic has deletes, so that each row says what it is."""
    writer = CsvWriter(out, meta, changes)
    for rows in chosen:
        writer.write(rows)
    if writer.left_out:
        click.echo(f"left out, as the first rows have no such field: {', '.join(sorted(writer.left_out))}", err=True)


def write_tables(chosen: Iterator[Rows], spec: TopicSpec, meta: bool, live: bool) -> None:
    """Tables for people. live: each as soon as it is there, below one header; else rows are brought together first."""
    waiting, seen, writer = list[pa.Table](), set[str](), Writer(live)

    def show() -> None:
        table = _together(waiting)
        keys = [*(table.column_names[:2] if meta else ()), *key_columns(spec)]
        print_table(table, "table", keys=keys, writer=writer)
        waiting.clear()

    for rows in chosen:
        own = [*rows.own, *([rows.op] if rows.gone else [])]
        waiting.append(_for_people(rows, spec, seen) if meta else rows.table.select(own))
        if live or sum(t.num_rows for t in waiting) >= TABLE_ROWS:
            show()
    if waiting:
        show()


def _for_people(rows: Rows, spec: TopicSpec, seen: set[str]) -> pa.Table:
    """Position first, then the row; what no row has (nor had before: seen), and what stands in a column anyway, is left out."""
    names = dict(zip(META, rows.table.schema.names[len(rows.own) :], strict=True))
    order = [names[SHOWN_PARTITION], names[SHOWN_OFFSET]]
    order += [] if spec.key and not (rows.gone and spec.schema is None) else [names[SHOWN_KEY]]
    order += [] if spec.time else [names[SHOWN_TIME]]
    order += [*rows.own, names[SHOWN_HEADERS], names[SHOWN_OP]]
    seen |= {name for name in names.values() if rows.table.column(name).null_count < rows.count}
    empty = set(names.values()) - seen
    return rows.table.select([name for name in order if name not in empty])


def _together(tables: list[pa.Table]) -> pa.Table:
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:  # fields of raw values whose type changes on the way
        texts = [
            pa.table({n: [None if v is None else str(v) for v in json_values(t.column(n))] for n in t.schema.names}) for t in tables
        ]
        return pa.concat_tables(texts, promote_options="default")
