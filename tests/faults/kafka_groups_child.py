"""Writes down a position of a group on the broker argv[1], once and after every line that comes in; says what became of it."""

import sys
from dataclasses import replace

from penstock.errors import PenstockError
from penstock.log.groups.port import Source
from penstock.log.kafka.groups.keeper import KafkaGroups
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.port import TopicSpec

PATIENCE = {"gone\n": 12.0}  # longer than one request may take, so that several are given up


def put(url: str, patience: float) -> str:
    settings = replace(KafkaSettings.of(url), patience=patience)
    try:
        KafkaGroups(settings).put("flow.x", source, {0: 1})
        return "put"
    except PenstockError as error:
        return type(error).__name__


if __name__ == "__main__":
    topic = KafkaLog(KafkaSettings.of(sys.argv[1])).create(TopicSpec("a", 1))
    source = Source("a", topic.id, 1)
    print(put(sys.argv[1], 60.0), flush=True)
    for line in sys.stdin:
        print(put(sys.argv[1], PATIENCE.get(line, 60.0)), flush=True)
