"""Who should own what: even, complete, and with as few moves as can be."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.groups.assignment import assign

MEMBERS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)
OWNERS = st.lists(st.none() | st.sampled_from("abcdefghxyz"), max_size=20)


@given(MEMBERS, OWNERS)
def test_every_partition_gets_a_member_and_nobody_has_two_more_than_another(members: list[str], owners: list[str | None]) -> None:
    wanted = assign(dict(enumerate(owners)), members)
    assert wanted.keys() == set(range(len(owners)))
    if members:
        counts = [list(wanted.values()).count(member) for member in members]
        assert sum(counts) == len(owners)
        assert max(counts) - min(counts) <= 1
    else:
        assert set(wanted.values()) <= {None}


@given(MEMBERS, OWNERS)
def test_only_partitions_without_a_member_and_those_too_many_move(members: list[str], owners: list[str | None]) -> None:
    if not members:
        return
    wanted = assign(dict(enumerate(owners)), members)
    share, more = divmod(len(owners), len(members))
    has = sorted((owners.count(member) for member in members), reverse=True)
    must_move = sum(max(0, count - share - (place < more)) for place, count in enumerate(has))
    moved = sum(owner in members and wanted[partition] != owner for partition, owner in enumerate(owners))
    assert moved == must_move


def test_the_same_members_change_nothing() -> None:
    once = assign(dict.fromkeys(range(7)), ["a", "b", "c"])
    assert assign(once, ["a", "b", "c"]) == once
    assert sorted(map(list(once.values()).count, "abc")) == [2, 2, 3]
