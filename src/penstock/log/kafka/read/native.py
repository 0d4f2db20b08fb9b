"""Records fetched through librdkafka itself, the library inside Kafka's Python client: arrays, and no Python object a record.

A fetched record is known by a small struct with the addresses of its key and value, which lie in the batch as the broker sent it.
So records that follow each other there are copied at once (batches.py), and only what does not follow from the bytes between them,
the time of a batch and headers, is asked of the library, record by record.
"""

import ctypes
import threading
from collections import deque
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import LogError
from penstock.log.kafka.client import PerProcess, as_error, away, library
from penstock.log.kafka.read.batches import Chains, Cuts, Numbers, Placed, chains_of
from penstock.log.kafka.read.fetching import READING, Fetched, Header, Headers
from penstock.log.kafka.settings import KafkaSettings

_CONSUMER, _OK, _EOF = 1, 0, -191
_LOG_APPEND_TIME = 2
_START, _SPACE = 4096, 1 << 47  # addresses of a process: nobody's are below the one, nor above the other
# Where the fields of rd_kafka_message_t stand, in words of eight bytes.
_ERROR, _VALUE, _VALUE_SIZE, _KEY, _KEY_SIZE, _OFFSET = 0, 3, 4, 5, 6, 7

Pointers = npt.NDArray[np.int64]


@cache
def native_library() -> Any:
    """librdkafka as Kafka's Python client brings it along; None where it is built or linked otherwise."""
    client = find_spec("confluent_kafka")
    if client is None or client.origin is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    for path in sorted(Path(client.origin).parent.parent.glob("confluent_kafka.libs/librdkafka-*.so*")):
        try:
            library()  # what it depends on is loaded with the client
            return _declared(ctypes.CDLL(str(path)), ctypes.PyDLL(str(path)))
        except (OSError, AttributeError):
            continue
    return None


def _declared(lib: Any, quick: Any) -> Any:
    pointer, text, number, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    to = ctypes.POINTER
    for name, result, arguments in (
        ("conf_new", pointer, []),
        ("conf_set", number, [pointer, text, text, text, size]),
        ("new", pointer, [number, pointer, text, size]),
        ("topic_new", pointer, [pointer, text, pointer]),
        ("consume_start", number, [pointer, ctypes.c_int32, ctypes.c_int64]),
        ("consume_stop", number, [pointer, ctypes.c_int32]),
        ("consume_batch", ctypes.c_ssize_t, [pointer, ctypes.c_int32, number, pointer, size]),
        ("message_timestamp", ctypes.c_int64, [pointer, to(number)]),
        ("message_headers", number, [pointer, to(pointer)]),
        ("header_get_all", number, [pointer, size, to(text), to(pointer), to(size)]),
        ("last_error", number, []),
    ):
        function = getattr(lib, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    lib.let_go = quick.rd_kafka_message_destroy  # quick: it does not let other threads run for so little
    lib.let_go.restype, lib.let_go.argtypes = None, [pointer]
    return lib


class _Memory:
    """The memory of this process, for addresses that the library gave."""

    def __init__(self) -> None:
        octets: Any = (ctypes.c_uint8 * (_SPACE - _START)).from_address(_START)
        words: Any = (ctypes.c_int64 * ((_SPACE - _START) // 8)).from_address(_START)
        self._octets, self._words = np.ctypeslib.as_array(octets), np.ctypeslib.as_array(words)

    def peek(self, addresses: Numbers) -> npt.NDArray[np.uint8]:
        return self._octets[addresses - _START]

    def words(self, structs: Pointers, field: int) -> Numbers:
        return self._words[(structs - _START) // 8 + field]

    def copy(self, address: int, size: int) -> bytes:
        return ctypes.string_at(address, size)


class _Client:
    """One client of this process and broker, for all partitions that it reads. Never closed: its threads end with the process."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.lib, self.memory = native_library(), _Memory()
        why = ctypes.create_string_buffer(512)
        conf = self.lib.rd_kafka_conf_new()
        for name, value in settings.client(**READING).items():
            said = str(value).lower() if isinstance(value, bool) else str(value)
            if self.lib.rd_kafka_conf_set(conf, name.encode(), said.encode(), why, len(why)) != _OK:
                raise LogError(f"Kafka's client refuses the setting {name}", why.value.decode(errors="replace"))
        self._handle = self.lib.rd_kafka_new(_CONSUMER, conf, why, len(why))
        if not self._handle:
            raise away(settings, why.value.decode(errors="replace"))
        self._topics: dict[str, int] = {}
        self._taken: set[tuple[str, int]] = set()
        self._guard = threading.Lock()

    def take(self, place: tuple[str, int]) -> bool:
        """Whether nobody else reads this partition now: the library cannot be asked for it twice, and ends the process if it is."""
        with self._guard:
            free = place not in self._taken
            self._taken.add(place)
            return free

    def give_back(self, place: tuple[str, int]) -> None:
        with self._guard:
            self._taken.discard(place)

    def topic(self, name: str) -> int:
        with self._guard:
            if name not in self._topics:
                self._topics[name] = self.lib.rd_kafka_topic_new(self._handle, name.encode(), None)
            return self._topics[name]


_CLIENTS = PerProcess()


class Taken(Exception):
    """Another fetcher of this process has the partition."""


class NativeFetcher:
    """Behind the same port as PlainFetcher, and with the same answers; one at a time for a partition: Taken is raised else."""

    def __init__(self, settings: KafkaSettings, name: str, partition: int) -> None:
        self._settings, self._name, self._partition = settings, name, partition
        self._client = client = _CLIENTS.get(settings.connection, lambda: _Client(settings))
        if not client.take((name, partition)):
            raise Taken
        self._lib, self._memory, self._topic = client.lib, client.memory, client.topic(name)
        self._started, self._next, self._open = False, 0, True

    def seek(self, offset: int) -> None:
        self.rest()
        self._next = offset

    def rest(self) -> None:
        if self._started:
            self._lib.rd_kafka_consume_stop(self._topic, self._partition)
            self._started = False

    def close(self) -> None:
        self.rest()
        if self._open:
            self._open = False
            self._client.give_back((self._name, self._partition))

    def fetch(self, most: int, seconds: float) -> Fetched:
        if not self._started:
            if self._lib.rd_kafka_consume_start(self._topic, self._partition, self._next):
                raise self._failed(self._lib.rd_kafka_last_error())
            self._started = True
        found = self._consumed(1, seconds)  # waits for one; the rest is what has come meanwhile
        if len(found):
            found = np.concatenate([found, self._consumed(most - 1, 0)])
        try:
            return self._taken(found)
        finally:
            deque(map(self._lib.let_go, found.tolist()), maxlen=0)

    def _consumed(self, most: int, seconds: float) -> Pointers:
        """Addresses of structs, ours until they are let go."""
        pointers = np.zeros(most, np.int64)
        got = self._lib.rd_kafka_consume_batch(self._topic, self._partition, int(seconds * 1000), pointers.ctypes.data, most)
        if got < 0:
            raise self._failed(self._lib.rd_kafka_last_error())
        return pointers[:got]

    def _taken(self, structs: Pointers) -> Fetched:
        end, errors = -1, self._memory.words(structs, _ERROR).astype(np.int32)  # the lower half of its word
        for i in np.flatnonzero(errors != _OK).tolist():
            if errors[i] != _EOF:
                raise self._failed(int(errors[i]))
            end = int(self._memory.words(structs[i : i + 1], _OFFSET)[0])
        structs = structs[errors == _OK]
        offsets = self._memory.words(structs, _OFFSET)
        self._next = max([self._next, end, *(offsets[-1:] + 1).tolist()])
        if not len(structs):
            return Fetched(offsets, offsets, pa.array([], pa.binary()), pa.array([], pa.binary()), end=end)
        records = Placed(*(self._memory.words(structs, field) for field in (_VALUE, _VALUE_SIZE, _KEY, _KEY_SIZE)))
        chains = chains_of(records, self._memory)
        cuts = Cuts(records, chains, self._memory)
        headers = _both(Headers(*cuts.headers()), self._asked(structs, ~chains.known))
        return Fetched(offsets, self._times(structs, chains), cuts.keys(), cuts.values(), headers, end)

    def _asked(self, structs: Pointers, which: npt.NDArray[np.bool_]) -> Headers:
        return Headers.of({i: found for i in np.flatnonzero(which).tolist() if (found := self._headers(int(structs[i])))})

    def _times(self, structs: Pointers, chains: Chains) -> Numbers:
        """Milliseconds. The first two records of a chain are asked for; of the others the batch tells how far they lie apart."""
        out = np.empty(len(structs), np.int64)
        kind = ctypes.c_int()
        for first, stop in chains.spans():
            out[first] = self._lib.rd_kafka_message_timestamp(int(structs[first]), ctypes.byref(kind))
            if stop - first > 1:
                second = self._lib.rd_kafka_message_timestamp(int(structs[first + 1]), ctypes.byref(kind))
                apart = chains.moved[first + 1 : stop] - chains.moved[first + 1]
                out[first + 1 : stop] = second + (0 if kind.value == _LOG_APPEND_TIME else apart)
        return out

    def _headers(self, struct: int) -> list[Header]:
        found = ctypes.c_void_p()
        if self._lib.rd_kafka_message_headers(struct, ctypes.byref(found)) != _OK:
            return []
        out: list[Header] = []
        name, value, size = ctypes.c_char_p(), ctypes.c_void_p(), ctypes.c_size_t()
        while self._lib.rd_kafka_header_get_all(found, len(out), *map(ctypes.byref, (name, value, size))) == _OK:
            data = None if value.value is None else ctypes.string_at(value.value, size.value)
            out.append(((name.value or b"").decode("utf-8", "surrogateescape"), data))
        return out

    def _failed(self, code: int) -> Exception:
        return as_error(self._settings, library().KafkaError(code), self._name)


def _both(one: Headers, other: Headers) -> Headers:
    """Headers of different records, in the order of these."""
    if not len(one) or not len(other):
        return one if len(one) else other
    rows = np.concatenate([one.rows, other.rows])
    order = np.argsort(rows, kind="stable")
    names, values = pa.concat_arrays([one.names, other.names]), pa.concat_arrays([one.values, other.values])
    return Headers(rows[order], names.take(order), values.take(order))
