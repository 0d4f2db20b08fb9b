"""A bridge as a process that is killed; run by the tests of bridges: HOME URL DIRECTION QUEUE TOPIC.

URL: that of a RabbitMQ, or `log` for queues on the log of the home. DIRECTION: `in` (queue to topic) or `out`. Says `ready` when
it begins, and how much it has moved, in a line of its own whenever that has changed."""

import os
import sys
from pathlib import Path

from penstock.log.open import open_log
from penstock.queue.bridge.bridge import Moved
from penstock.queue.bridge.to_queue import TopicToQueue
from penstock.queue.bridge.to_topic import QueueToTopic
from penstock.queue.open import open_queues

BATCH, LEASE = 20, "1 second"


def say(moved: Moved, trouble: str) -> None:
    os.write(1, f"{trouble or moved.taken}\n".encode())


def main() -> None:
    home, url, direction, queue, topic = sys.argv[1:]
    log, queues = open_log(Path(home)), open_queues(None if url == "log" else url, Path(home))
    found = queues.queue(queue)
    os.write(1, b"ready\n")
    if direction == "in":
        QueueToTopic(found, log.topic(topic), batch=BATCH, report=say).run(follow=True)
    else:
        TopicToQueue(log, topic, found, batch=BATCH, lease=LEASE, report=say).run(follow=True)


if __name__ == "__main__":
    main()
