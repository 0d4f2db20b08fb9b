"""Who should own which partition: as even as can be, and as few moves as that allows."""

from collections.abc import Mapping, Sequence


def assign(now: Mapping[int, str | None], members: Sequence[str]) -> dict[int, str | None]:
    """now: the owner of every partition, or None. members: in the order they came. Every partition gets a member, none more than
    one partition above another; a member keeps its partitions unless it has too many."""
    if not members:
        return dict.fromkeys(now)
    has = {member: sorted(p for p, owner in now.items() if owner == member) for member in members}
    share, more = divmod(len(now), len(members))
    largest = sorted(members, key=lambda member: -len(has[member]))[:more]
    quota = {member: share + (member in largest) for member in members}
    kept = {member: has[member][: quota[member]] for member in members}
    free = iter(sorted(set(now).difference(*kept.values())))
    for member in members:
        kept[member] += [next(free) for _ in range(quota[member] - len(kept[member]))]
    return {partition: member for member, mine in kept.items() for partition in mine}
