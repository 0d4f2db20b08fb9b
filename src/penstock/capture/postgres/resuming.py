"""Whether a server can be followed on from a position: its slot has everything since, and it is the same server with the same
history. Where not, changes may be missing: it is said, with what to do, and nothing is skipped."""

from typing import TYPE_CHECKING

from penstock.capture.postgres.lsn import lsn_text
from penstock.capture.postgres.position import WalPosition
from penstock.capture.postgres.slots import describe_slot
from penstock.capture.postgres.stream.replication import System
from penstock.capture.postgres.wal import end_of_log
from penstock.errors import NotFollowable, SlotLost

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

RESNAPSHOT = "`penstock cdc run NAME --resnapshot` makes a new slot, reads the tables again and writes what differs"


def check_slot(connection: "Connection", slot: str, at: WalPosition | None, confirmed: int) -> int:
    """Where the slot begins; SlotLost or NotFollowable if it has not everything since the position. confirmed: how far we have
    confirmed it."""
    found = describe_slot(connection, slot)
    if found is None or found.lost:
        what = "was invalidated" if found else "is not there any more"
        why = [f"the server says: {found.invalidated or found.wal_status}"] if found else []
        raise SlotLost(f"replication slot {slot!a} {what}: changes since then are missing", *why, hint=RESNAPSHOT)
    begin = found.confirmed_lsn or 0
    if at is None:
        return begin
    if begin > max(at.end, confirmed):
        raise SlotLost(
            f"replication slot {slot!a} begins at {lsn_text(begin)}, behind what was read",
            f"the log has everything up to {lsn_text(at.end)}; somebody has made the slot anew or moved it on",
            hint=RESNAPSHOT,
        )
    now = end_of_log(connection)
    if now < max(at.end, confirmed):
        raise NotFollowable(
            f"the server's log ends at {lsn_text(now)}, before what was read from it ({lsn_text(max(at.end, confirmed))})",
            "it was restored from an older copy, or another server has taken over that had not all of it",
            hint=RESNAPSHOT,
        )
    return begin


def check_server(at: WalPosition, system: System) -> None:
    """NotFollowable if the position is one of another server, or of another history of this one."""
    if at.system != system.identifier:
        raise NotFollowable(
            "this is another server than the one that was followed",
            f"its system identifier is {system.identifier}, that one's was {at.system}",
            hint=RESNAPSHOT,
        )
    if at.timeline != system.timeline:
        raise NotFollowable(
            f"the server is on timeline {system.timeline}; it was followed on timeline {at.timeline}",
            "it was restored, or a standby has taken over: positions of the two need not mean the same",
            hint=RESNAPSHOT,
        )
