"""A driver's topic sink in a process of its own: `kafka_sink_child.py URL GENERATION`; then a line for each epoch, as JSON: its
number and its ids. It answers with the last epoch that the topic has, with "done", or with what went wrong."""

import sys
from collections.abc import Callable

import orjson
import pyarrow as pa

from penstock.core.columns import POSITION, TIME, WATERMARK
from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.errors import PenstockError
from penstock.log.open import open_log
from penstock.sinks.port import Delivery, Marker, SinkSpec, nothing
from penstock.sinks.topic import TopicSink
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import ipc_file

SPEC = SinkSpec("shop", "settled", Schema.of("id long"), ())
PARTITIONS = 2


class Driver:
    """What a start of flow shop writes."""

    def __init__(self, url: str, generation: int, fail: Callable[[str], None] = nothing) -> None:
        self.generation, self.storage = generation, MemoryStorage()
        self.sink = TopicSink(SPEC, open_log(url=url), "settled", PARTITIONS, ("id",), self.storage, fail)
        self.last = self.sink.open("life", generation)

    def epoch(self, number: int, ids: list[int]) -> None:
        names = {"id": ids, TIME: ids, WATERMARK: [NEVER] * len(ids)}
        columns = {name: pa.array(values, pa.int64()) for name, values in names.items()}
        columns[POSITION] = pa.array([b"%04d" % id for id in ids], pa.binary())
        self.storage.publish(f"{number}.arrow", ipc_file(pa.table(columns)))
        self.sink.deliver(Delivery(Marker("life", self.generation, number), [f"{number}.arrow"], NEVER))


def main() -> None:
    driver = Driver(sys.argv[1], int(sys.argv[2]))
    print(driver.last, flush=True)
    for line in sys.stdin:
        number, ids = orjson.loads(line)
        try:
            driver.epoch(number, ids)
            print("done", flush=True)
        except PenstockError as error:
            print(f"{type(error).__name__}: {error.what}", flush=True)


if __name__ == "__main__":
    main()
