"""What PostgreSQL says of itself before Debezium follows it: which server it is, how far its log has come, and whether the slot has
what is missing here."""

import time
from collections.abc import Mapping
from typing import Any

from penstock.capture.definition import CaptureDefinition
from penstock.capture.postgres.connecting import connect, translated
from penstock.capture.postgres.lsn import lsn_of, lsn_text
from penstock.capture.postgres.slots import Slot, describe_publication, describe_slot, drop_publication, drop_slot
from penstock.errors import NotFollowable, SlotInUse, SlotLost

PATIENCE = 30.0  # seconds in which a server notices that a reader of its slot is gone
_AGAIN = 0.1
_STATE = "select pg_current_wal_lsn()::text, (select system_identifier::text from pg_control_system())"


class PostgresSource:
    """Looks at the server of a capture."""

    def __init__(self, definition: CaptureDefinition) -> None:
        self._definition, self._slot = definition, str(definition.options["slot"])

    def begin(self) -> tuple[dict[str, Any], str]:
        """Before a snapshot: removes a slot that an earlier try has left, as only the one that makes a slot gets the snapshot that
        belongs to it. Returns how far the log has come, and which server it is."""
        return self._looked(None)

    def go_on(self, offset: Mapping[str, Any], system: str) -> tuple[dict[str, Any], str]:
        """Before the stream goes on: SlotLost or NotFollowable if it cannot be had from there. Debezium would make a missing slot
        anew, and leave out what lies between."""
        target, now = self._looked(offset)
        if system and now != system:
            raise NotFollowable(
                "this is another server than the one that was followed",
                f"its system identifier is {now}, that one's was {system}",
                hint="`penstock cdc remove` and `cdc add` begin anew, with a snapshot",
            )
        return target, now

    def taken(self) -> str | None:
        """What there is already under the names that Debezium will use."""
        with connect(self._definition.url, f"penstock {self._slot}", password=self._definition.secret.read()) as connection:
            if describe_slot(connection, self._slot):
                return f"replication slot {self._slot!a}"
            name = str(self._definition.options["publication"])
            return f"publication {name!a}" if describe_publication(connection, name) is not None else None

    def tear_down(self) -> list[str]:
        """Drops the slot and the publication that Debezium has made; says what was dropped."""
        name, removed = str(self._definition.options["publication"]), list[str]()
        connection = connect(self._definition.url, f"penstock {self._slot}", password=self._definition.secret.read())
        with connection:
            if slot := describe_slot(connection, self._slot):
                self._drop(connection, slot)
                removed.append(f"replication slot {self._slot} is dropped")
            if describe_publication(connection, name) is not None:
                drop_publication(connection, name)
                removed.append(f"publication {name} is dropped")
        return removed

    def _looked(self, offset: Mapping[str, Any] | None) -> tuple[dict[str, Any], str]:
        connection = connect(self._definition.url, f"penstock {self._slot}", password=self._definition.secret.read())
        with connection:
            slot = describe_slot(connection, self._slot)
            if offset is None:
                self._drop(connection, slot)
            else:
                _check(self._slot, slot, int(offset["at"]["lsn"]))
            with translated("look at the server's log"):
                ((lsn, system),) = connection.execute(_STATE).fetchall()
        if offset is not None and lsn_of(lsn) < int(offset["at"]["lsn"]):
            raise NotFollowable(
                f"the server's log ends at {lsn}, before what was read from it ({lsn_text(int(offset['at']['lsn']))})",
                "it was restored from an older copy, or another server has taken over that had not all of it",
                hint="`penstock cdc remove` and `cdc add` begin anew, with a snapshot",
            )
        return {"lsn": lsn_of(lsn)}, str(system)

    def _drop(self, connection: Any, slot: Slot | None) -> None:
        deadline = time.monotonic() + PATIENCE
        while slot:
            try:
                drop_slot(connection, self._slot)
                slot = None
            except SlotInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN)


def _check(name: str, slot: Slot | None, lsn: int) -> None:
    hint = "`penstock cdc remove` and `cdc add` begin anew, with a snapshot"
    if slot is None or slot.lost:
        what = "was invalidated" if slot else "is not there any more"
        raise SlotLost(f"replication slot {name!a} {what}: changes since then are missing", hint=hint)
    if slot.confirmed_lsn is not None and slot.confirmed_lsn > lsn:
        raise SlotLost(
            f"replication slot {name!a} begins at {lsn_text(slot.confirmed_lsn)}, behind what was read",
            f"the log has everything up to {lsn_text(lsn)}; somebody has made the slot anew or moved it on",
            hint=hint,
        )
