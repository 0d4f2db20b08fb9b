"""Names of groups and members, and what is said where one does not fit."""

import difflib
import secrets
from collections.abc import Iterable, Mapping

from penstock.core.names import check_name
from penstock.errors import BadInput, NotFound
from penstock.log.groups.leases import Beat
from penstock.log.groups.port import FLOW, QUEUE
from penstock.log.groups.rules import Member, lease_micros


def check_joined(group: str) -> str:
    """The name of a group that members may join."""
    for prefix in (FLOW, QUEUE):
        if check_name(group, "group").startswith(prefix):
            raise BadInput(
                f"{group} is a {prefix[:-1]}, which cannot be joined", hint=f"choose a name that does not begin with {prefix}"
            )
    return group


def check_reader(group: str, offsets: Mapping[int, int]) -> str:
    """The name of a reader, and offsets that can be."""
    for partition, offset in offsets.items():
        if partition < 0 or offset < 0:
            raise BadInput(f"{offset} is not a valid offset of partition {partition}")
    return check_name(group, "group")


def new_member(label: str, lease: float, beat: Beat) -> Member:
    """A member that was never there before: an id is used once."""
    return Member(secrets.token_hex(6), label, 0, lease_micros(lease), beat)


def no_group(group: str, topic: str | None, known: Iterable[str]) -> NotFound:
    names = sorted(set(known))
    close = difflib.get_close_matches(group, names, 3)
    what = f"there is no group {group}" if topic is None or group not in names else f"group {group} does not read topic {topic}"
    hint = f"did you mean {' or '.join(close)}?" if close and group not in names else "penstock group list shows those there are"
    return NotFound(what, hint=hint)
