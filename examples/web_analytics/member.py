"""A member of the group web-analytics: counts the page views of its partitions, and says what it reads.

python member.py NAME
"""

import sys
from collections import Counter

from penstock import GroupConsumer, GroupSettings


def main(name: str, lease: str = "3 seconds") -> None:
    views = Counter[str]()
    with GroupConsumer(None, "web-analytics", "page-views", settings=GroupSettings(lease=lease, label=name)) as consumer:
        for batch in consumer:
            views.update(batch.table.column("page").to_pylist())
            offsets = batch.table.column("offset")
            print(f"{name} read {batch.partition}: {offsets[0]} to {offsets[-1]}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
