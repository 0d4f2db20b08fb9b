"""Epochs that somebody beside the flow still needs: a note in the flow's directory keeps them from being swept."""

import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import orjson
import psutil

from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.errors import NotFound
from penstock.storage.port import Storage

_DIRECTORY = "holds"
_ELSEWHERE = 86_400.0  # seconds that a note of another host counts: nobody here can tell whether its process lives


@contextmanager
def held_last(decisions: Decisions) -> Iterator[Decision]:
    """The last decision, NotFound if there is none. It and those behind it stay for the time of the `with`, or of this process."""
    path = f"{_DIRECTORY}/{uuid.uuid4().hex}"
    while True:
        last = decisions.last()
        if last is None:
            raise NotFound(f"flow {decisions.flow} has decided nothing yet", hint="run it first: penstock run")
        since = psutil.Process().create_time()
        note = {"epoch": last.epoch, "pid": os.getpid(), "host": socket.gethostname(), "since": since, "at": time.time()}
        decisions.storage.publish(path, orjson.dumps(note))
        if last.epoch in decisions.epochs():  # it might have been swept before the note was there
            break
        decisions.storage.remove(path, durable=False)
    try:
        yield last
    finally:
        decisions.storage.remove(path, durable=False)


def first_held(storage: Storage) -> int | None:
    """The first epoch that is held; None if none is. Notes of processes that have ended go."""
    found = [_epoch(storage, f"{_DIRECTORY}/{name}") for name in storage.list(_DIRECTORY)]
    return min((epoch for epoch in found if epoch is not None), default=None)


def _epoch(storage: Storage, path: str) -> int | None:
    with suppress(NotFound, orjson.JSONDecodeError, KeyError, TypeError):
        note = orjson.loads(storage.read(path).to_pybytes())
        if time.time() - note["at"] < _ELSEWHERE if note["host"] != socket.gethostname() else _lives(note["pid"], note["since"]):
            return int(note["epoch"])
        storage.remove(path, durable=False)
    return None


def _lives(pid: int, since: float) -> bool:
    """Numbers of processes are given out again, in a container soon."""
    try:
        return abs(psutil.Process(pid).create_time() - since) < 1.0
    except psutil.Error:
        return False
