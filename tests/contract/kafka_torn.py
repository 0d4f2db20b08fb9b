"""Transactions whose end never comes, on a real broker: records of a producer's id that no coordinator knows of. A broker that was
killed and has dropped the marker of a partition leaves the same."""

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from crc32c import crc32c

from penstock.log.kafka.read.fetching import Header
from penstock.testing.servers.kafka_broker import KafkaBroker
from waiting import until

PRODUCE, INIT_PRODUCER_ID = (0, 7), (22, 1)  # requests, and the versions of them that are spoken here
TRANSACTIONAL = 0x10
VERIFICATION = "transaction.partition.verification.enable"
Record = tuple[bytes | None, bytes | None, Sequence[Header]]  # key, value, headers


@contextmanager
def unverified(broker: KafkaBroker) -> Iterator[None]:
    """The broker takes records of transactions that it has not begun."""
    admin = AdminClient({"bootstrap.servers": broker.address})

    def put(value: str) -> None:
        entry = ConfigEntry(VERIFICATION, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)

    put("false")
    yield
    put("true")


def left_open(broker: KafkaBroker, id: str, topic: str, partition: int, records: Sequence[Record]) -> int:
    """Writes records under a transactional id that nobody will end; the offset of the first."""
    found: list[int] = []

    def written() -> bool:
        with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as connection:
            error, producer, epoch = struct.unpack(">hqh", _ask(connection, INIT_PRODUCER_ID, _text(id) + _int(60_000))[4:16])
            if not error:
                batch = _batch(records, producer, epoch)
                one = _text(topic) + _int(1) + _int(partition) + _int(len(batch)) + batch
                answer = _ask(connection, PRODUCE, _text(id) + struct.pack(">hi", -1, 30_000) + _int(1) + one)
                error, offset = struct.unpack(">hq", answer[4 + 2 + len(topic) + 8 :][:10])
                found[:] = [offset]
            return not error

    assert until(written), "the broker does not take them"
    return found[0]


def _ask(connection: socket.socket, request: tuple[int, int], body: bytes) -> bytes:
    head = struct.pack(">hhi", *request, 1) + _text("torn")
    connection.sendall(_int(len(head + body)) + head + body)
    size = struct.unpack(">i", _read(connection, 4))[0]
    return _read(connection, size)[4:]


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += (more := connection.recv(size - len(data)))
        assert more, "the broker has hung up"
    return data


def _batch(records: Sequence[Record], producer: int, epoch: int) -> bytes:
    body = b"".join(_record(n, *record) for n, record in enumerate(records))
    now, last = 1_700_000_000_000, len(records) - 1
    rest = struct.pack(">hiqqqhii", TRANSACTIONAL, last, now, now, producer, epoch, 0, len(records)) + body
    checked = struct.pack(">ibI", 0, 2, crc32c(rest)) + rest
    return struct.pack(">qi", 0, len(checked)) + checked


def _record(number: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> bytes:
    named = b"".join(_bytes(name.encode()) + _bytes(told) for name, told in headers)
    body = b"\0" + _varint(0) + _varint(number) + _bytes(key) + _bytes(value) + _varint(len(headers)) + named
    return _varint(len(body)) + body


def _bytes(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _varint(value: int) -> bytes:
    rest, out = value << 1 ^ value >> 63, b""
    while rest > 0x7F:
        out, rest = out + bytes([rest & 0x7F | 0x80]), rest >> 7
    return out + bytes([rest])


def _int(value: int) -> bytes:
    return struct.pack(">i", value)


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()
