"""Takes emails from the queue and delivers them: those that fail again and again end among the dead letters, and block nobody.

python worker.py            works until nothing is left
"""

import re
from collections.abc import Callable
from pathlib import Path

from penstock import Queue, Reject
from penstock.queue.message import Received

OUTBOX = Path("outbox.txt")


def deliver(message: Received) -> None:
    email = message.json()
    if "unsubscribed" in email.get("tags", ()):
        raise Reject("the reader has unsubscribed")
    if not re.fullmatch(r"[^@ ]+@[^@ ]+", email["to"]):
        raise ValueError(f"{email['to']!r} is no address")
    with OUTBOX.open("a") as outbox:
        outbox.write(f"{message.id} {email['to']}\n")


def main(delivered: Callable[[str], None] = lambda id: None, lease: str = "30 seconds", retry: str = "20 ms") -> None:
    """delivered: called when an email is out, and the queue does not know it yet."""
    emails = Queue.open("emails")

    def handle(message: Received) -> None:
        deliver(message)
        delivered(message.id)

    done = emails.work(handle, workers=2, lease=lease, retry=retry, until_empty=True)
    print(f"{done.done} delivered, {done.failed} tries failed, {done.rejected} rejected")


if __name__ == "__main__":
    main()
