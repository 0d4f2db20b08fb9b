"""Three encoders, of which one is slow, work on the parts of six videos: in any order, and with the parts of a video in order.

python encode.py
"""

from dataclasses import dataclass

from penstock import Queue
from penstock.queue.client.consumer import QueueConsumer
from penstock.queue.message import Received

VIDEOS, PARTS = ("cats", "dogs", "owls", "bees", "foxes", "newts"), 8
PACE = (1, 2, 4)  # minutes that each of the encoders takes for a part


@dataclass
class Encoder:
    consumer: QueueConsumer
    pace: int
    part: Received | None = None
    until: int = 0

    def step(self, minute: int) -> str | None:
        """One minute goes by; the part that is finished in it, if one is."""
        finished = None
        if self.part and self.until <= minute:
            finished = self.part.text
            self.part.ack()
            self.part = None
        if self.part is None and (lent := self.consumer.receive()):
            self.part, self.until = lent[0], minute + self.pace
        return finished


def encode(queue: Queue) -> tuple[list[str], int]:
    """The parts in the order they were finished, and the minutes it took."""
    for video in VIDEOS:
        for part in range(PARTS):
            queue.send(f"{video}/{part}", key=video)
    finished, minute = list[str](), 0
    encoders = [Encoder(queue.consumer(prefetch=1), pace) for pace in PACE]
    while len(finished) < len(VIDEOS) * PARTS:
        finished += [part for encoder in encoders if (part := encoder.step(minute))]
        minute += 1
    return finished, minute - 1


def out_of_order(finished: list[str]) -> int:
    """Parts that were finished after a later part of their video."""
    last: dict[str, int] = {}
    count = 0
    for name in finished:
        video, _, part = name.partition("/")
        count += int(part) < last.get(video, -1)
        last[video] = max(int(part), last.get(video, -1))
    return count


def main() -> None:
    for name, ordered in (("round robin", False), ("one part of a video at a time", True)):
        finished, minutes = encode(Queue.create(f"parts-{ordered}", at="memory:", ordered=ordered))
        print(f"{name}: {len(finished)} parts in {minutes} minutes, {out_of_order(finished)} finished out of order")


if __name__ == "__main__":
    main()
