"""Queues: send, receive and acknowledge, in memory, on the log and on RabbitMQ, in batches and one by one."""

import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from measuring import Meter, median
from report import Table, options, parsed, percent, publish, rate

from penstock.log.file.log import FileLog
from penstock.log.port import TopicSpec
from penstock.queue.memory import MemoryQueues
from penstock.queue.on_log.queues import LogQueues
from penstock.queue.port import Consumer, Message, QueuePort, QueueSpec, QueuesPort, Settlement
from penstock.storage.local import LocalStorage

_BODY = bytes(100)
_BATCH = 100
_THREADS = 16
_CLASSIC, _QUORUM = "RabbitMQ, classic queue", "RabbitMQ, quorum queue"

Opened = tuple[Callable[..., QueuesPort], tuple[Any, ...]]  # how another process opens the same queues


def log_queues(place: str) -> QueuesPort:
    return LogQueues(FileLog(LocalStorage(place)))


def rabbit_queues(url: str) -> QueuesPort:
    from penstock.queue.rabbitmq.queues import RabbitQueues

    return RabbitQueues(url)


def in_turn(queue: QueuePort, messages: int, batch: int) -> None:
    """One thread: sends, receives and acknowledges so many at a time."""
    consumer = Consumer("one", prefetch=2 * batch)
    for _ in range(messages // batch):
        queue.send([Message(_BODY)] * batch)
        settled = 0
        while settled < batch:
            got = queue.receive(consumer, batch - settled)
            if queue.settle([Settlement(d.receipt, "ack") for d in got]):
                raise SystemExit("a lease was lost")
            settled += len(got)


def send_alone(opened: Opened, name: str, messages: int, ready: Any, go: Any) -> None:
    """A process of senders: every message is one call that returns when it is safe."""
    queue = opened[0](*opened[1]).queue(name)
    queue.state()
    ready.release()
    go.wait()
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda _: [queue.send([Message(_BODY)]) for _ in range(messages // _THREADS)], range(_THREADS)))


def take_alone(opened: Opened, name: str, messages: int, ready: Any, go: Any, done: Any) -> None:
    """A process of consumers: every message is one call that receives it and one that acknowledges it."""
    queue = opened[0](*opened[1]).queue(name)
    queue.state()
    left = [messages]

    def work(number: int) -> None:
        consumer = Consumer(f"c{number}")
        while left[0] > 0:
            got = queue.receive(consumer)
            if not got:
                time.sleep(0.001)
                continue
            if queue.settle([Settlement(got[0].receipt, "ack")]):
                raise SystemExit("a lease was lost")
            left[0] -= 1

    ready.release()
    go.wait()
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(work, range(_THREADS)))
    done.release()


def apart(opened: Opened, name: str, messages: int) -> float:
    """Messages a second of a process of senders and one of consumers, each message alone."""
    context = multiprocessing.get_context("spawn")
    ready, go, done = context.Semaphore(0), context.Event(), context.Semaphore(0)
    each = messages // _THREADS * _THREADS
    people = [
        context.Process(target=send_alone, daemon=True, args=(opened, name, each, ready, go)),
        context.Process(target=take_alone, daemon=True, args=(opened, name, each, ready, go, done)),
    ]
    for process in people:
        process.start()
    for _ in people:
        ready.acquire()
    started = time.perf_counter()
    go.set()
    while not done.acquire(timeout=1):
        if any(process.exitcode for process in people):
            raise SystemExit(f"{name}: one of the processes failed")
    took = time.perf_counter() - started
    for process in people:
        process.join()
    return each / took


@contextmanager
def brokers(place: Path) -> Iterator[dict[str, Opened]]:
    """All that are measured. RabbitMQ only where it can be had."""
    with ExitStack() as stack:
        found: dict[str, Opened] = {"memory": (MemoryQueues, ()), "on the log": (log_queues, (str(place / "log"),))}
        if shutil.which("rabbitmq-server") or Path("/usr/lib/rabbitmq/bin").is_dir():
            from penstock.testing.servers.rabbitmq_server import RabbitServer

            (place / "rabbit").mkdir()
            server = stack.enter_context(RabbitServer(place / "rabbit", memory="4GB"))
            found[_CLASSIC] = (rabbit_queues, (f"{server.url}?queues=classic&prefix=classic.",))
            found[_QUORUM] = (rabbit_queues, (f"{server.url}?queues=quorum&prefix=quorum.",))
        yield found


def batches(found: dict[str, Opened], counts: dict[str, int], repeat: int) -> Table:
    title = f"Messages of {len(_BODY)} bytes sent, received and acknowledged, {_BATCH} at a time, one thread"
    out = Table(title, "queue", "messages/s", "of the log's", "CPU/message", "foreign")
    rates: dict[str, list[float]] = {name: [] for name in found}
    meters: dict[str, Meter] = {}
    for name, (make, how) in found.items():  # RabbitMQ last: it is at work for a while after it was asked for nothing more
        queues = make(*how)
        for number in range(repeat):
            queue = queues.create(QueueSpec(f"batch{number}"))
            in_turn(queue, 10 * _BATCH, _BATCH)
            with Meter() as meter:
                in_turn(queue, counts[name], _BATCH)
            rates[name].append(counts[name] / meter.seconds)
            meters[name] = meter
    for name in found:
        of_log = median(a / b for a, b in zip(rates[name], rates["on the log"], strict=True))
        cpu = f"{meters[name].cpu / counts[name] * 1e6:.0f} µs"
        out.add(name, rate(median(rates[name])), percent(of_log), cpu, percent(meters[name].foreign))
    return out


def singles(found: dict[str, Opened], counts: dict[str, int], repeat: int) -> Table:
    title = f"The same one by one: a process of {_THREADS} senders, one of {_THREADS} consumers (memory: one thread does all)"
    out = Table(title, "queue", "messages/s", "of the log's")
    rates: dict[str, list[float]] = {name: [] for name in found}
    for name, opened in found.items():
        queues = opened[0](*opened[1])
        for number in range(repeat):
            queue = queues.create(QueueSpec(f"single{number}"))
            if name == "memory":
                started = time.perf_counter()
                in_turn(queue, counts[name], 1)
                rates[name].append(counts[name] / (time.perf_counter() - started))
            else:
                rates[name].append(apart(opened, f"single{number}", counts[name]))
    for name, values in rates.items():
        out.add(name, rate(median(values)), percent(median(a / b for a, b in zip(values, rates["on the log"], strict=True))))
    return out


def bridges(place: Path, found: dict[str, Opened], count: int, repeat: int) -> Table:
    """Messages of a queue into a topic, and records of a topic into a queue, by a bridge in this process."""
    from penstock.queue.bridge.to_queue import TopicToQueue
    from penstock.queue.bridge.to_topic import QueueToTopic

    out = Table(f"Bridges, messages of {len(_BODY)} bytes", "queue", "into a topic, messages/s", "out of a topic, messages/s")
    log = FileLog(LocalStorage(place / "bridges"))
    for name, (make, how) in found.items():
        queues, into, out_of = make(*how), list[float](), list[float]()
        for number in range(repeat):
            queue, topic = (
                queues.create(QueueSpec(f"bridge{number}")),
                log.create(TopicSpec(f"{name.replace(' ', '-').replace(',', '')}{number}")),
            )
            for _ in range(count // 1_000):
                queue.send([Message(_BODY)] * 1_000)
            started = time.perf_counter()
            moved = QueueToTopic(queue, topic).run()
            into.append(count / (time.perf_counter() - started))
            started = time.perf_counter()
            back = TopicToQueue(log, topic.spec.name, queue).run()
            out_of.append(count / (time.perf_counter() - started))
            if (moved.moved, back.moved) != (count, count):
                raise SystemExit(f"{name}: {moved} into the topic, {back} out of it")
        out.add(name, rate(median(into)), rate(median(out_of)))
    return out


def main() -> None:
    given = parsed(options(__doc__, 20_000, 2_000), repeat=3)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, brokers(Path(name)) as found:
        large = {n: given.rows * (20 if n == "memory" else 5) for n in found}
        small = {n: given.rows * 5 if n == "memory" else given.rows // 2 for n in found}
        tables: Sequence[Table] = [
            batches(found, large, given.repeat),
            singles(found, small, given.repeat),
            bridges(Path(name), found, max(given.rows, 2_000), given.repeat),
        ]
    publish("queues", tables, given.markdown)


if __name__ == "__main__":
    main()
