"""Several databases as one sink: an epoch becomes visible in all of them, close together, or in none. (G37)

Every database has a marker of its own, in the transaction of its rows. An epoch is written to all of them, prepared in all, and
then committed in all. After a crash, and whenever a database was away, `open` finishes what was left prepared (resolving.py),
before it takes or writes anything.

A driver that was replaced is kept out at every step. Before it prepares anywhere it holds the locks of all markers, and has
found no later generation there; a successor needs each of these locks to write its generation, so it is through only when
nothing of the old driver is open or prepared any more. What the old one has prepared the successor finishes, and the old one
finds it gone when it wakes up. Every try has a gid of its own, with the generation and a token: were it the same for all tries of
an epoch, the old driver, about to commit, would commit what its successor has prepared, perhaps before the other databases have it;
and a rollback that was decided for one try could hit the next. A start finishes what its own and older generations have left, and
none of a later one.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import pyarrow as pa

from penstock.errors import SinkUnavailable
from penstock.sinks.admission import admitted
from penstock.sinks.port import Delivery, Marker, SinkContext
from penstock.sinks.stores.changes import Keep, changes_of, merged
from penstock.sinks.stores.port import Note, Refusal
from penstock.sinks.stores.sink import EMPTIED, IDLE, kept, refusing, rows_refused, start_over, with_reasons
from penstock.sinks.stores.two_phase.agreeing import agreed
from penstock.sinks.stores.two_phase.gid import Attempt
from penstock.sinks.stores.two_phase.port import Participant, Preparable
from penstock.sinks.stores.two_phase.resolving import resolve

# Those of a database are passed once for each of them.
POINTS = (
    "two_phase.begun",
    "two_phase.rows",
    "two_phase.marker",
    "two_phase.prepared",
    "two_phase.committed",
    "two_phase.delivered",
)


class TwoPhaseSink:
    """Delivers to databases that can prepare. stops, keep, emptied: as in StoreSink. A row that one of them refuses is
    left out of all.

    `fail` of the context is called with each of POINTS as it is passed."""

    def __init__(
        self,
        context: SinkContext,
        participants: Sequence[Participant],
        stops: bool = False,
        keep: Keep = "last",
        emptied: str = EMPTIED,
    ) -> None:
        self._spec, self._storage, self._fail, self._refuse = context.spec, context.storage, context.fail, context.refuse
        self._participants, self._stops, self._keep, self._emptied = participants, stops, keep, emptied
        self._has: dict[Participant, int] = {}  # the last epoch that we know to be there

    def open(self, incarnation: str, generation: int) -> int:
        try:
            return self._opened(Marker(incarnation, generation, -1))
        except BaseException:
            self.close()
            raise

    def _opened(self, ours: Marker) -> int:
        for each in self._participants:
            each.open()
        resolve(self._participants, lambda attempt: self._ours(attempt, ours))
        notes = {each: self._fenced(each, ours) for each in self._participants}
        self._has = {each: note.marker.epoch if note else -1 for each, note in notes.items()}
        refused = {note.marker.epoch: note for note in notes.values() if note and note.refused}
        for _, note in sorted(refused.items()):  # a crash may have come between the commits and the dead letters
            self._refuse(note.marker, rows_refused(note.refused))
        return min(self._has.values())

    def _ours(self, attempt: Attempt, ours: Marker) -> None:
        called, found = (
            f"a prepared transaction of sink {self._spec.name}",
            Marker(attempt.incarnation, attempt.generation, attempt.epoch),
        )
        admitted(called, self._spec.flow, found, ours, "finish what that left: penstock doctor --resolve")

    def _fenced(self, each: Participant, ours: Marker) -> Note | None:
        """Older drivers are kept out from here on."""
        with each.transaction() as transaction:
            note = transaction.note()
            epoch = self._admitted(each, note, ours)
            transaction.make()
            if note is None or note.marker.generation < ours.generation:
                transaction.keep(Note(Marker(ours.incarnation, ours.generation, epoch), note.refused if note else b""))
        return note

    def deliver(self, delivery: Delivery) -> None:
        self.deliver_together([delivery])

    def deliver_together(self, deliveries: Sequence[Delivery]) -> None:
        marker = deliveries[-1].marker
        if not any(delivery.files for delivery in deliveries) and marker.epoch < min(self._has.values(), default=-1) + IDLE:
            return  # given again by the next start, to no effect
        with ExitStack() as stack:
            begun = {each: stack.enter_context(each.transaction()) for each in self._participants}
            self._fail("two_phase.begun")
            has = {each: self._present(each, transaction, marker) for each, transaction in begun.items()}
            lacking = {each: begun[each] for each in begun if has[each] < marker.epoch}
            if not lacking:
                return
            written, refused = self._written(lacking, has, deliveries)
            self._fail("two_phase.rows")
            for transaction in lacking.values():
                transaction.keep(Note(marker, refused))
            self._fail("two_phase.marker")
            attempt = Attempt.new(marker)
            for each, transaction in lacking.items() if written else ():  # markers alone need not come together
                transaction.prepare(each.gid(attempt))
                self._fail("two_phase.prepared")
        for each in lacking if written else ():
            self._commit(each, attempt, marker)
            self._fail("two_phase.committed")
        self._has |= dict.fromkeys(lacking, marker.epoch)
        self._fail("two_phase.delivered")
        if refused:
            self._refuse(marker, rows_refused(refused))

    def close(self) -> None:
        for each in self._participants:
            each.close()

    def _commit(self, each: Participant, attempt: Attempt, marker: Marker) -> None:
        """That there is no such transaction means: look at the marker. Somebody has finished it, one way or the other."""
        if each.commit(each.gid(attempt)) or self._admitted(each, each.kept(), marker) >= marker.epoch:
            return
        raise SinkUnavailable(
            f"{each.called} has epoch {marker.epoch} neither prepared nor committed",
            "its prepared transaction was rolled back by somebody else; it is delivered again",
        )

    def _present(self, each: Participant, transaction: Preparable, ours: Marker) -> int:
        """The last epoch that is there, locked."""
        has = self._admitted(each, transaction.note(), ours)
        if has < self._has.get(each, -1):
            raise SinkUnavailable(
                f"{each.called} has gone back from epoch {self._has[each]} to {has}",
                "it was restored from a copy, or emptied; what it lacks is delivered again, as far as it is kept",
            )
        return has

    def _admitted(self, each: Participant, note: Note | None, ours: Marker) -> int:
        return admitted(each.called, self._spec.flow, note.marker if note else None, ours, start_over(self._emptied))

    def _written(
        self, lacking: Mapping[Participant, Preparable], has: Mapping[Participant, int], deliveries: Sequence[Delivery]
    ) -> tuple[bool, bytes]:
        """Whether there was anything to write, and what was refused. Databases that lack the same get the same rows; one that was
        restored from a copy gets what it lost alone."""
        written, refused = False, list[pa.Table]()
        lacks = {
            each: tuple(n for n, delivery in enumerate(deliveries) if delivery.marker.epoch > has[each] and delivery.files)
            for each in lacking
        }
        for numbers in sorted({*lacks.values()} - {()}):
            alike = {each.called: transaction for each, transaction in lacking.items() if lacks[each] == numbers}
            new = [changes_of(self._spec, self._storage, deliveries[n].files, self._keep) for n in numbers]
            changes = merged(new, self._spec, self._keep)
            if changes.put.num_rows or changes.gone.num_rows:
                written = True
                refused += self._refused(changes.put, agreed(alike, changes))
        return written, kept(pa.concat_tables(refused)) if refused else b""

    def _refused(self, rows: pa.Table, refusals: Sequence[Refusal]) -> list[pa.Table]:
        if refusals and self._stops:
            raise refusing(f"sink {self._spec.name}", rows.select(self._spec.schema.names), refusals)
        return [with_reasons(rows, refusals)] if refusals else []
