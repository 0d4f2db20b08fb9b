"""A new slot for a capture whose old one is lost, or belongs to a server that is not followed any more."""

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import kind_of
from penstock.capture.postgres.connecting import connect, translated
from penstock.capture.postgres.copy.published import published_tables
from penstock.capture.postgres.copy.snapshots import Snapshot
from penstock.capture.postgres.keys import Keys
from penstock.capture.postgres.kind import slot_of
from penstock.capture.postgres.position import Copied, WalPosition, named
from penstock.capture.postgres.slots import describe_slot, drop_slot
from penstock.capture.postgres.wal import visible_now
from penstock.errors import NotYet, SlotInUse, SlotLost

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

RETRY = 0.2  # seconds between two looks
_OLD = """
select format('process %%s of the server: %%s, %%s, since %%s', pid, usename, nullif(application_name, ''), xact_start)
from pg_stat_activity where backend_xid is not null and age(backend_xid) >= age(%s::text::xid) order by xact_start limit 5"""


def with_new_slot(definition: CaptureDefinition, patience: float, told: Callable[[str], None]) -> WalPosition:
    """Drops the slot, if there is one, and makes it anew, with what else the capture needs in the database; the position at which
    it begins, with the copies of all tables taken for done. Everything that was committed before it is visible when this returns:
    a snapshot that is taken now and the slot together miss nothing. NotYet if older transactions do not end."""
    system, timeline = _identified(definition)
    with closing(connect(definition.url, f"penstock {slot_of(definition)}", password=definition.secret.read())) as connection:
        _drop(connection, slot_of(definition), patience, told)
        told("making a new replication slot; the server waits for transactions that run now")
        kind_of(definition.engine).set_up(definition)
        slot = describe_slot(connection, slot_of(definition))
        if slot is None or slot.confirmed_lsn is None:
            raise SlotLost(f"replication slot {slot_of(definition)!a} is gone again", hint="who drops it?")
        _wait(connection, visible_now(connection), patience, told)
        keys, tables = Keys(connection), published_tables(connection, slot_of(definition))
        copied = {
            named(table): Copied(done=True, identity=identity, key=keys.of_table(table).columns)
            for table, identity in tables.items()
        }
    # The next commit may stand at the very position at which the slot begins, so that the last one lies before.
    return WalPosition(system, timeline, slot.confirmed_lsn - 1, slot.confirmed_lsn, copied=copied)


def _identified(definition: CaptureDefinition) -> tuple[str, int]:
    connected = closing(connect(definition.url, "penstock", True, definition.secret.read()))
    with connected as connection, translated("look which server it is"):
        ((identifier, timeline, *_),) = connection.execute("IDENTIFY_SYSTEM")
    return str(identifier), int(timeline)


def _drop(connection: "Connection", name: str, patience: float, told: Callable[[str], None]) -> None:
    deadline = time.monotonic() + patience
    while describe_slot(connection, name):
        try:
            drop_slot(connection, name)
        except SlotInUse:
            if time.monotonic() > deadline:
                raise
            told(f"waiting for the reader of replication slot {name} to end")
            time.sleep(RETRY)


def _wait(connection: "Connection", made: Snapshot, patience: float, told: Callable[[str], None]) -> None:
    """Until every transaction that ran when the slot was made has ended: one that had committed before the slot begins, and was not
    visible yet, would be neither in its stream nor in a snapshot."""
    deadline = time.monotonic() + patience
    while visible_now(connection).xmin < made.xmax:
        if time.monotonic() > deadline:
            with translated("look which transactions run"):
                old = [who for (who,) in connection.execute(_OLD, (str((made.xmax - 1) & 0xFFFFFFFF),))]
            raise NotYet("transactions that ran when the slot was made have not ended", *old, hint="end them, and try again")
        told("waiting for transactions that ran when the slot was made")
        time.sleep(RETRY)
