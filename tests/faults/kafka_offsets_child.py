"""Many groups at once find where they begin at a broker that has had none."""

import sys
from concurrent.futures import ThreadPoolExecutor

from penstock.log.groups.port import Source
from penstock.log.kafka.groups.keeper import KafkaGroups
from penstock.log.kafka.log import KafkaLog
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.port import TopicSpec

GROUPS = 20


def main(url: str) -> None:
    settings = KafkaSettings.of(url)
    topic = KafkaLog(settings).create(TopicSpec("views"))
    groups, source = KafkaGroups(settings), Source("views", topic.id, 1)
    with ThreadPoolExecutor(GROUPS) as pool:
        members = list(pool.map(lambda n: groups.join(f"g{n}", source, {0: n}, label="m", lease=30.0), range(GROUPS)))
    for member in members:
        member.leave()
    print(sorted(held.offset for held in groups.positions("views")))


if __name__ == "__main__":
    main(sys.argv[1])
