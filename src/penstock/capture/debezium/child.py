"""The process in which Debezium's engine runs: hands batches of records to the process that has started it, and lets Debezium note
down how far it has come once they are durable there.

It is started as a file, with nothing but the standard library and JPype, and speaks in frames, a length and JSON, over its standard
input and output. It ends when its input does: whoever has started it may be killed at any time."""

import json
import os
import queue
import shutil
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

LENGTH = struct.Struct(">I")
_OPEN = '"status":"BEGIN"'
_TRUNCATE = '"op":"t"'
_TAIL = 160  # behind `op` an envelope has nothing but times


class Frames:
    """Both ends of the pipes. What is read waits in a queue, so that the end of the input is noticed at once."""

    def __init__(self) -> None:
        self.directory = ""  # goes when the one who has started this process is gone
        self._out = os.dup(1)
        os.dup2(2, 1)  # what libraries print is no frame
        self._lock = threading.Lock()
        self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def read(self) -> dict[str, Any]:
        return self._said.get()

    def write(self, text: str) -> None:
        data = text.encode()
        rest = memoryview(LENGTH.pack(len(data)) + data)
        with self._lock:
            while rest:
                rest = rest[os.write(self._out, rest) :]

    def _listen(self) -> None:
        with open(0, "rb", closefd=False) as source:
            while len(head := source.read(LENGTH.size)) == LENGTH.size:
                self._said.put(json.loads(source.read(LENGTH.unpack(head)[0])))
        shutil.rmtree(self.directory, ignore_errors=True)
        os._exit(0)


class Told:
    """What the batches of one engine say: rows in their order, schemas when they are new, and how far it is safe to go on from."""

    def __init__(self, jvm: Any, prefix: str, fresh: bool) -> None:
        self._identity = jvm.JClass("java.lang.System").identityHashCode
        self._mapper = jvm.JClass("com.fasterxml.jackson.databind.ObjectMapper")()
        self._journal, self._heartbeat = f"{prefix}.transaction", f"__debezium-heartbeat.{prefix}"
        self._beside = {self._heartbeat, f"{prefix}.message"}
        self._beat: tuple[str, int] | None = None
        self._schemas: dict[int, Any] = {}  # held, so that no other one is taken for it
        self._open = self._safe = self._quiet = False
        self._fresh = fresh

    def frames(self, records: Any) -> Iterator[tuple[str, Any]]:
        """Frames without their number, and of each the last record behind which no transaction is open. A snapshot ends with
        a frame, so that it is known where to go on behind it."""
        rest = list(records)
        while rest:
            frame, last, count = self._frame(rest)
            yield frame, last
            rest = rest[count:]

    def _frame(self, records: list[Any]) -> tuple[str, Any, int]:
        rows: list[str] = []
        schemas: dict[int, Any] = {}
        last = None
        for record in records:
            rows.append(self._row(record, schemas))
            if self._safe:
                last = record
                if self._fresh:
                    self._fresh = False
                    break
        quiet, self._quiet = json.dumps(self._quiet), False
        head = f'"kind":"batch","quiet":{quiet},"offset":{self._place(last)},"schemas":{json.dumps(schemas)}'
        return f'{head},"rows":[{",".join(rows)}]', last, len(rows)

    def _row(self, record: Any, schemas: dict[int, Any]) -> str:
        """The record as JSON; `_safe` says whether it is one to go on behind."""
        topic, value, key = str(record.destination()), record.value(), record.key()
        text, schema = "null" if value is None else str(value), 0
        truncates = False
        beat, self._beat = self._beat, self._beaten(record) if topic == self._heartbeat else None
        if beat and self._beat and self._beat == (beat[0], beat[1] + 1):
            self._open, self._quiet = False, True
        if topic == self._journal:
            self._open = _OPEN in text
        elif topic not in self._beside:
            schema = self._schema(record.sourceRecord(), schemas)
            truncates = self._open and _TRUNCATE in text[-_TAIL:] and _is_of_binlog(record)
            self._open = self._open and not truncates  # the binlog has no end of its transaction
        self._safe = not self._open and (topic == self._journal or topic in self._beside or truncates)
        return f'["{topic}",{schema},{"null" if key is None else key},{text}]'

    def _beaten(self, record: Any) -> tuple[str, int] | None:
        """Where in a binlog a heartbeat was. Where two stand side by side the server had nothing else to send: a transaction
        of DDL, which has no end of its own, is over."""
        at = json.loads(str(self._mapper.writeValueAsString(record.sourceRecord().sourceOffset())))
        return (str(at["transaction_id"]), int(at["event"])) if "transaction_id" in at and "event" in at else None

    def _place(self, record: Any) -> str:
        """Where Debezium goes on behind a record."""
        if record is None:
            return "null"
        source = record.sourceRecord()
        partition, at = (str(self._mapper.writeValueAsString(each)) for each in (source.sourcePartition(), source.sourceOffset()))
        return f'{{"partition":{partition},"at":{at}}}'

    def _schema(self, record: Any, new: dict[int, Any]) -> int:
        value = record.valueSchema()
        if value is None:
            return 0
        known = int(self._identity(value))
        if known not in self._schemas:
            self._schemas[known] = value
            keys = [str(field.name()) for field in record.keySchema().fields()] if record.keySchema() is not None else []
            row = value.field("after")
            new[known] = {"columns": described(row.schema())["fields"], "key": keys} if row is not None else {}
        return known


def _is_of_binlog(record: Any) -> bool:
    return bool(record.sourceRecord().sourceOffset().containsKey("file"))


def described(schema: Any) -> dict[str, Any]:
    """A schema of Kafka Connect as JSON."""
    kind = str(schema.type())
    told: dict[str, Any] = {"type": kind, "name": str(schema.name()) if schema.name() is not None else None}
    if schema.parameters() is not None:
        told["parameters"] = {str(each.getKey()): str(each.getValue()) for each in schema.parameters().entrySet()}
    if kind == "ARRAY":
        told["items"] = described(schema.valueSchema())
    if kind == "STRUCT":
        told["fields"] = [[str(field.name()), described(field.schema())] for field in schema.fields()]
    return told


def consumer(jvm: Any, frames: Frames, told: Told, history: Callable[[], str]) -> Any:
    """What Debezium gives its batches to. It waits in there until it is told to go on."""

    @jvm.JImplements("io.debezium.engine.DebeziumEngine$ChangeConsumer")
    class Consumer:
        number = 0
        cuts: dict[int, Any]

        def __init__(self) -> None:
            self.cuts = {}

        @jvm.JOverride  # type: ignore[untyped-decorator]
        def handleBatch(self, records: Any, committer: Any) -> None:
            for frame, last in told.frames(records):
                self.number += 1
                if last is not None:
                    self.cuts[self.number] = last
                frames.write(f'{{"number":{self.number},"history":{json.dumps(history())},{frame}}}')
                self.mark(frames.read()["written"], committer)

        def mark(self, written: int, committer: Any) -> None:
            """Debezium notes down that it has come as far as that, and tells the database."""
            due = [number for number in self.cuts if number <= written]
            if due:
                committer.markProcessed(self.cuts[max(due)])
                committer.markBatchFinished()
            for number in due:
                del self.cuts[number]

        @jvm.JOverride  # type: ignore[untyped-decorator]
        def supportsTombstoneEvents(self) -> bool:
            return False

    return Consumer()


def callback(jvm: Any, frames: Frames) -> Any:
    """Told why the engine has ended."""

    @jvm.JImplements("io.debezium.engine.DebeziumEngine$CompletionCallback")
    class Ended:
        @jvm.JOverride  # type: ignore[untyped-decorator]
        def handle(self, success: bool, message: Any, error: Any) -> None:
            frames.write(json.dumps({"kind": "ended", "why": [str(message), *causes(error)]}))

    return Ended()


def causes(error: Any) -> list[str]:
    """An exception of Java and what it was caused by, a line each."""
    found: list[str] = []
    while error is not None and len(found) < 8:
        found.append(f"{error.getClass().getName()}: {error.getMessage()}")
        error = error.getCause()
    return found


def store_offset(jvm: Any, path: str, name: str, place: dict[str, Any]) -> None:
    """Writes the file from which Debezium's engine learns where to go on."""
    key = json.dumps([name, place["partition"]], separators=(",", ":")).encode()
    stored = jvm.JClass("java.util.HashMap")()
    stored.put(jvm.JArray(jvm.JByte)(key), jvm.JArray(jvm.JByte)(json.dumps(place["at"]).encode()))
    target = jvm.JClass("java.io.ObjectOutputStream")(jvm.JClass("java.io.FileOutputStream")(path))
    target.writeObject(stored)
    target.close()


def answers(jvm: Any, ask: dict[str, Any]) -> list[Any]:
    """What the database answers to statements: rows of texts for each. ask: url, user, password and statements."""
    properties = jvm.JClass("java.util.Properties")()
    for name in ("user", "password"):
        if ask.get(name) is not None:
            properties.setProperty(name, ask[name])
    connection = jvm.JClass("java.sql.DriverManager").getConnection(ask["url"], properties)
    try:
        return [_answer(connection.createStatement(), each) for each in ask["statements"]]
    finally:
        connection.close()


def _answer(statement: Any, sql: str) -> list[list[str | None]]:
    if not statement.execute(sql):
        return []
    found, rows = statement.getResultSet(), []
    columns = range(1, found.getMetaData().getColumnCount() + 1)
    while found.next():
        values = [found.getString(column) for column in columns]
        rows.append([None if value is None else str(value) for value in values])
    return rows


def growth(path: str | None) -> Callable[[], str]:
    """What Debezium has added to its history of schemas since it was asked last."""
    seen = [os.path.getsize(path) if path and os.path.exists(path) else 0]

    def added() -> str:
        if path is None or not os.path.exists(path) or os.path.getsize(path) == seen[0]:
            return ""
        with open(path, "rb") as file:
            file.seek(seen[0])
            data = file.read()
        seen[0] += len(data)
        return data.decode()

    return added


def follow(jvm: Any, frames: Frames, told: dict[str, Any]) -> None:
    """Runs the engine until it ends by itself or with this process."""
    properties = jvm.JClass("java.util.Properties")()
    for name, value in told["properties"].items():
        properties.setProperty(name, value)
    prefix = told["properties"]["topic.prefix"]
    if told["offset"] is not None:
        where = told["properties"]["offset.storage.file.filename"]
        store_offset(jvm, where, told["properties"]["name"], told["offset"])
    engine = jvm.JClass("io.debezium.engine.DebeziumEngine").create(jvm.JClass("io.debezium.engine.format.Json").class_)
    path = told["properties"].get("schema.history.internal.file.filename")
    if path is not None and told["history"]:
        with open(path, "wb") as file:
            file.write(told["history"].encode())
    taker = consumer(jvm, frames, Told(jvm, prefix, told["offset"] is None), growth(path))
    engine.using(properties).using(callback(jvm, frames)).notifying(taker).build().run()


def main() -> None:
    frames = Frames()
    told = frames.read()
    frames.directory = told.get("directory", "")
    try:
        import jpype

        jpype.startJVM(*told["java"], classpath=told["jars"])
    except Exception as error:
        frames.write(json.dumps({"kind": "ended", "why": [f"{type(error).__name__}: {error}"], "java": True}))
        return
    try:
        if told.get("ask"):
            frames.write(json.dumps({"kind": "answers", "answers": answers(jpype, told["ask"])}))
        if told.get("properties"):
            follow(jpype, frames, told)
    except jpype.JException as error:
        frames.write(json.dumps({"kind": "ended", "why": causes(error)}))


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    os._exit(0)  # threads of Debezium that are left do not count
