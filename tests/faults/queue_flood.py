"""A producer that is ten times too fast, and what it costs: WHERE POLICY DIRECTORY. Run by the tests of queues, as a process.

200 MB go to a queue of 32 MB (`buffer`: no limit that counts). Prints, as JSON: how many messages were taken in, turned away and
consumed, the most bytes that the queue held, and by how many bytes the process grew.
"""

import json
import sys
import threading
import time
from pathlib import Path

from penstock.errors import Full
from penstock.log.file.log import FileLog
from penstock.queue.memory import MemoryQueues
from penstock.queue.on_log.queues import LogQueues
from penstock.queue.port import Consumer, Limit, Message, QueuePort, QueueSpec, Settlement
from penstock.storage.local import LocalStorage

BODY, MESSAGES, BATCH = 100_000, 2_000, 10
LIMIT = 32 << 20


def held() -> int:
    """Bytes of memory that are this process's own; files that are mapped do not count."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


def consume(queue: QueuePort, told: dict[str, int], full: threading.Event, ended: threading.Event) -> None:
    """Begins when the queue has been full, or all is sent: nobody is that slow for ever."""
    while not full.wait(0.01) and not ended.is_set():
        pass
    while True:
        over = ended.is_set()
        got = queue.receive(Consumer("slow"), BATCH)
        queue.settle([Settlement(d.receipt, "ack") for d in got])
        told["consumed"] += len(got)
        if over and not got:
            return
        time.sleep(0 if got else 0.002)


def main() -> None:
    where, policy, directory = sys.argv[1:]
    queues = MemoryQueues() if where == "memory" else LogQueues(FileLog(LocalStorage(Path(directory), sync=False)))
    limit = Limit() if policy == "buffer" else Limit(policy, bytes=LIMIT)  # type: ignore[arg-type]
    queue = queues.create(QueueSpec("flood", limit=limit))
    queue.send([Message(b"warm")])
    queue.receive(Consumer("warm"), auto=True)
    told = {"sent": 0, "away": 0, "consumed": 0, "most": 0, "full": 0, "grown": 0}
    full, ended, before = threading.Event(), threading.Event(), held()
    consumer = threading.Thread(target=consume, args=(queue, told, full, ended))
    consumer.start()
    for _ in range(MESSAGES // BATCH):
        batch = [Message(bytes(BODY)) for _ in range(BATCH)]
        try:
            ids = queue.send(batch)
        except Full:
            told["full"] += 1
            full.set()
            ids = queue.send(batch, wait=30)
        told["away"] += ids.count(None)
        told["sent"] += len(ids) - ids.count(None)
        told["most"] = max(told["most"], queue.state().bytes or 0)
        told["grown"] = max(told["grown"], held() - before)
    ended.set()
    consumer.join()
    counts = queue.state().counts
    print(json.dumps({**told, "dropped": counts.get("dropped", 0), "refused": counts.get("refused", 0)}))


if __name__ == "__main__":
    main()
