"""One of the writers: random transfers, until it is killed or has made them all.

python transfers.py NAME COUNT
"""

import random
import sys

from bank import EVENTS, Refused, transfer

from penstock.events import EventStore

ACCOUNTS = [f"account-{number}" for number in range(1, 6)]


def main(name: str, count: int) -> None:
    store, rng = EventStore.open("bank", EVENTS), random.Random(name)
    for number in range(count):
        source, target = rng.sample(ACCOUNTS, 2)
        try:
            transfer(store, source, target, rng.randint(1, 60), f"{name}-{number}")
        except Refused:
            continue
        print(f"{name}-{number}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
