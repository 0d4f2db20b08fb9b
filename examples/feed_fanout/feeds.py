"""A post goes to the feed of every follower: each feed is a queue of its own, and all of them take what is sent to one source.

python feeds.py            posts, and prints what every feed shows
"""

from collections.abc import Sequence
from contextlib import suppress

from penstock import Queue
from penstock.errors import AlreadyThere

FEEDS = {"ann": "#", "bob": "#", "cid": "#", "radio": "posts.music.*"}  # and the routes that each takes
POSTS = (
    ("posts.music.dora", "a new song"),
    ("posts.news.emil", "it rains"),
    ("posts.music.emil", "an old song"),
)


def feeds() -> dict[str, Queue]:
    """One feed a follower, and one that takes music alone."""
    for name, route in FEEDS.items():
        with suppress(AlreadyThere):
            Queue.create(f"feed-{name}", source="posts", bindings=[route])
    return {name: Queue.open(f"feed-{name}") for name in FEEDS}


def publish(posts: Sequence[tuple[str, str]]) -> None:
    """Sent once, through any of the feeds: what is sent goes to the source."""
    anywhere = Queue.open("feed-ann")
    for route, text in posts:
        anywhere.send(text, route=route)


def read(feed: Queue) -> list[str]:
    """What is new in a feed."""
    with feed.consumer(prefetch=100) as reader:
        messages = reader.receive(100)
        reader.ack(messages)
        return [message.text for message in messages]


def main() -> None:
    followers = feeds()
    publish(POSTS)
    for name, feed in followers.items():
        print(f"{name}: {', '.join(read(feed))}")


if __name__ == "__main__":
    main()
