"""Batches of an outbox one behind the other, whichever database it is in: after a kill first the one that was begun."""

from abc import ABC, abstractmethod
from dataclasses import replace

from penstock.capture import port
from penstock.capture.port import Json
from penstock.capture.postgres.copy.spool import Spool
from penstock.capture.triggers.pacing import Pacing
from penstock.storage.port import Storage


class Stepping(ABC):
    """What engines of triggers have in common. storage: a place of its own, where a chunk of a copy lies until it is written."""

    def __init__(self, storage: Storage) -> None:
        self._spool, self._pacing = Spool(storage), Pacing()
        self._unfinished: Json | None = None  # the intent of a batch that was begun before this start

    def next(self, wait: float) -> port.Batch | None:
        if self._unfinished:
            again = self._again(self._unfinished)
            self._unfinished = None
            return again
        for _ in self._pacing.tries(wait):
            batch = self._step()
            if batch:
                self._pacing.busy()
                return batch
        return None

    def _again(self, intent: Json) -> port.Batch:
        """The batch that was begun and not finished."""
        if intent["kind"] != "chunk":
            return self._rows_again(intent)
        batch = self._spool.take(intent)
        self._go_on_from(batch.position)
        return batch

    def _put_away(self, made: port.Batch) -> port.Batch:
        """A chunk of a copy, which cannot be read again as it was: it is on disk before it is given out."""
        self._go_on_from(made.position)
        return replace(made, intent=self._spool.put(made))

    @abstractmethod
    def _step(self) -> port.Batch | None:
        """The next batch, if there is one."""

    @abstractmethod
    def _rows_again(self, intent: Json) -> port.Batch:
        """The batch of the outbox's rows that was begun and not finished."""

    @abstractmethod
    def _go_on_from(self, position: Json) -> None:
        """The next batch begins here."""
