"""The offsets of a group, read and written by a client that never joins it.

That client is a consumer without a subscription. Kafka's admin client could ask as well, but when the broker it asks has just
stopped being the group's coordinator, it ends the whole process (librdkafka 5040)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.log.kafka.client import PROMPT, PerProcess, insisted, library, quiet
from penstock.log.kafka.settings import KafkaSettings

_CLIENTS = PerProcess()
_WAIT = round(PROMPT * 1000)  # how long a commit waits for a coordinator; it is no lease, for the client never joins
_MOST = 8  # clients that are kept, each with a few threads and connections


def read_offsets(settings: KafkaSettings, group: str, places: Sequence[Any]) -> list[Any]:
    """The committed offset of each place, negative where there is none, with what stands beside it; group: as the broker has it."""
    if not places:
        return []

    def ask() -> list[Any]:
        with _client(settings, group) as client:
            return list(client.committed(list(places), timeout=PROMPT))

    return insisted(settings, "", ask)


def write_offsets(settings: KafkaSettings, group: str, places: Sequence[Any]) -> Any | None:
    """Commits offsets for a group without members; the error where the broker refuses that, None if it is done."""
    kafka = library()
    refused = (kafka.KafkaError.UNKNOWN_MEMBER_ID, kafka.KafkaError.ILLEGAL_GENERATION, kafka.KafkaError.REBALANCE_IN_PROGRESS)

    def ask() -> Any | None:
        with _client(settings, group) as client:
            try:
                done = client.commit(offsets=list(places), asynchronous=False)
            except kafka.KafkaException as error:
                if error.args[0].code() in refused:
                    return error.args[0]
                raise
        return next((place.error for place in done if place.error is not None), None)

    return insisted(settings, "", ask)


@contextmanager
def _client(settings: KafkaSettings, group: str) -> Iterator[Any]:
    """The client for a group, for one at a time; it is kept for the next unless something went wrong."""
    key = (settings.connection, group)
    client = _CLIENTS.take(key) or library().Consumer(
        settings.client(**{"group.id": group, "enable.auto.commit": False}, **quiet())
    )
    try:
        yield client
    except BaseException:
        client.close()
        raise
    for old in _CLIENTS.give(key, client, _MOST):
        old.close()
