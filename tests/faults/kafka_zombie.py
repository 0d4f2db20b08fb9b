"""A member of a Kafka group that stops itself (SIGSTOP) when it owns all, and commits when it is woken. Argument: the log's URL."""

import os
import signal
import sys

from penstock.errors import Fenced
from penstock.log.groups.port import Source
from penstock.log.kafka.groups.keeper import KafkaGroups
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings


def main(url: str) -> None:
    log = KafkaLog(KafkaSettings.of(url))
    topic = log.topic("t")
    source = Source("t", topic.id, topic.spec.partitions)
    member = KafkaGroups(log.settings).join("g", source, {}, label="zombie", lease=6)
    while len(member.heartbeat(source).owned) < source.partitions:
        pass
    member.commit({0: 3})
    print("stopping", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        member.commit({0: 5})
        print("committed", flush=True)
    except Fenced as error:
        print("fenced", *str(error).split(), flush=True)
    member.leave()


if __name__ == "__main__":
    main(sys.argv[1])
