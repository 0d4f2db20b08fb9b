"""One topic, two contracts: a group reads every order in its order and adds up; packers share the same orders as work.

python orders.py            packs, adds up, and prints both
"""

from collections import Counter

from penstock import GroupConsumer, Queue
from penstock.queue.message import Received


def turnover() -> Counter[str]:
    """As a log: every row, in order, by a group that remembers how far it has come."""
    total: Counter[str] = Counter()
    with GroupConsumer(None, "turnover", "orders") as consumer:
        for record in consumer.records(follow=False):
            total[record.value["country"]] += record.value["amount"]
    return total


def pack(broken: str = "") -> tuple[list[str], list[str]]:
    """As a queue: each order to one packer; what cannot be packed goes to the dead letters, and holds up nobody."""
    packed: list[str] = []

    def handle(message: Received) -> None:
        order = message.json()
        if order["order_id"] == broken:
            raise ValueError("the box is too small")
        packed.append(order["order_id"])

    packing = Queue.open("packing")
    packing.work(handle, workers=3, retry="1 ms", until_empty=True)
    return packed, [letter.json()["order_id"] for letter in packing.dead_letters.peek(100)]


def main() -> None:
    packed, failed = pack(broken="o4")
    total = ", ".join(f"{country} {amount}" for country, amount in sorted(turnover().items()))
    print(f"packed {', '.join(sorted(packed))}; not packed {', '.join(failed)}")
    print(f"turnover: {total}")


if __name__ == "__main__":
    main()
