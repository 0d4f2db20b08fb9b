"""What every keeper of groups must pass. Subclass `GroupsContract`, say how yours is made, run pytest.

class TestMyGroups(GroupsContract):
    def make(self, place):
        return MyGroups(place / "groups")

A keeper whose leases can be run out by a clock also takes `LeaseContract`.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import BadInput, BadName, Fenced, InUse, Mismatch, NotFound
from penstock.log.groups.port import Groups, InFlight, Membership, Source, Standing

LEASE = 10.0


def settle(source: Source, *members: Membership, seconds: float = 60) -> list[Standing]:
    """Heartbeats in turn until every partition has one owner, evenly and twice in a row, and nobody waits; what each was told."""
    deadline, pause, before = time.monotonic() + seconds, threading.Event(), None
    while True:
        told = [member.heartbeat(source) for member in members]
        owned = [sorted(standing.owned) for standing in told]
        whole = sorted(partition for mine in owned for partition in mine) == list(range(source.partitions))
        even = max(map(len, owned)) - min(map(len, owned)) <= 1
        if whole and even and owned == before and not any(standing.asked or standing.waiting for standing in told):
            return told
        assert time.monotonic() < deadline, f"no agreement: {told}"
        before = owned
        pause.wait(0.01)


def owner_of(partition: int, source: Source, *members: Membership) -> Membership:
    told = settle(source, *members)
    return next(member for member, standing in zip(members, told, strict=True) if partition in standing.owned)


class GroupsContract(ABC):
    """The promises of `penstock.log.groups.port`, each as a test."""

    lease: float = LEASE  # seconds; where real time passes, longer than any pause of a busy machine
    told_lease: float | None = LEASE  # None: the keeper does not tell the leases of members

    @abstractmethod
    def make(self, place: Path) -> Groups:
        """A keeper without groups."""

    def source(self, topic: str, partitions: int) -> Source:
        """A topic that was just made."""
        return Source(topic, f"{topic}-1", partitions)

    def made_again(self, source: Source) -> Source:
        """The topic deleted and made anew."""
        return source._replace(id=source.id + "-2")

    def grown(self, source: Source, partitions: int) -> Source:
        """The topic with partitions added."""
        return source._replace(partitions=partitions)

    def check_asked(self, held: Standing, empty: Standing) -> None:
        """One of two members has all three partitions in hand."""
        assert held.asked == empty.waiting
        assert held.asked

    @pytest.fixture
    def groups(self, tmp_path: Path) -> Groups:
        return self.make(tmp_path)

    @pytest.fixture
    def views(self) -> Source:
        return self.source("page-views", 3)

    @pytest.fixture
    def join(self, groups: Groups, views: Source) -> Callable[..., Membership]:
        """Joins the group `web` that reads page-views from the beginning, unless told otherwise."""

        def join(group: str = "web", **begin: int) -> Membership:
            first = {int(name[1:]): offset for name, offset in begin.items()}
            return groups.join(group, views, first, label="test", lease=self.lease)

        return join

    # Members

    def test_one_member_owns_everything_from_where_the_group_begins(self, join: Callable[..., Membership], views: Source) -> None:
        [standing] = settle(views, join(p0=5, p2=7))
        assert standing.owned == {0: 5, 1: 0, 2: 7}

    def test_two_members_share_the_partitions(self, join: Callable[..., Membership], views: Source) -> None:
        first, second = settle(views, join(), join())
        assert sorted([len(first.owned), len(second.owned)]) == [1, 2]
        assert not first.owned.keys() & second.owned.keys()

    def test_a_member_too_many_owns_nothing(self, join: Callable[..., Membership], views: Source) -> None:
        told = settle(views, *(join() for _ in range(4)))
        assert sorted(len(standing.owned) for standing in told) == [0, 1, 1, 1]

    def test_a_partition_is_given_up_before_it_is_taken(self, join: Callable[..., Membership], views: Source) -> None:
        old = join()
        settle(views, old)
        new = join()
        busy = {partition: InFlight(0, 0.0) for partition in range(3)}
        for _ in range(5):
            held, empty = old.heartbeat(views, busy), new.heartbeat(views)
            assert held.owned.keys() == {0, 1, 2}
            assert not empty.owned
        self.check_asked(held, empty)
        told = settle(views, old, new)
        assert sorted(len(standing.owned) for standing in told) == [1, 2]

    def test_a_member_that_leaves_frees_its_partitions_at_once(self, join: Callable[..., Membership], views: Source) -> None:
        leaving, staying = join(), join()
        settle(views, leaving, staying)
        leaving.leave()
        leaving.leave()
        [standing] = settle(views, staying)
        assert standing.owned.keys() == {0, 1, 2}

    def test_members_keep_what_they_have_when_others_come_and_go(self, join: Callable[..., Membership], views: Source) -> None:
        first, second = join(), join()
        before = settle(views, first, second)
        third = join()
        settle(views, first, second, third)
        third.leave()
        after = settle(views, first, second)
        for was, now in zip(before, after, strict=True):
            kept = was.owned.keys() & now.owned.keys()
            assert len(kept) >= min(len(was.owned), len(now.owned))

    def test_partitions_that_are_added_get_an_owner_and_begin_at_0(self, join: Callable[..., Membership], views: Source) -> None:
        members = [join(p0=9), join(p0=9)]
        settle(views, *members)
        wider = self.grown(views, 5)
        told = settle(wider, *members)
        owned = {partition: offset for standing in told for partition, offset in standing.owned.items()}
        assert owned == {0: 9, 1: 0, 2: 0, 3: 0, 4: 0}
        assert sorted(len(standing.owned) for standing in told) == [2, 3]

    def test_groups_read_independently(self, join: Callable[..., Membership], views: Source, groups: Groups) -> None:
        web, audit = join("web"), join("audit", p1=4)
        settle(views, web)
        settle(views, audit)
        web.commit({1: 100})
        audit.commit({1: 5})
        assert settle(views, web)[0].owned[1] == 100
        assert settle(views, audit)[0].owned[1] == 5

    def test_a_group_reads_several_topics(self, groups: Groups, views: Source) -> None:
        clicks = self.source("clicks", 2)
        one = groups.join("web", views, {}, label="a", lease=self.lease)
        two = groups.join("web", clicks, {}, label="b", lease=self.lease)
        assert settle(views, one)[0].owned.keys() == {0, 1, 2}
        assert settle(clicks, two)[0].owned.keys() == {0, 1}
        assert [(state.group, state.topic) for state in groups.describe("web")] == [("web", "clicks"), ("web", "page-views")]

    # Offsets

    def test_whoever_takes_over_begins_at_the_last_commit(self, join: Callable[..., Membership], views: Source) -> None:
        dying = join()
        settle(views, dying)
        dying.commit({0: 100, 1: 80, 2: 90})
        dying.leave()
        [standing] = settle(views, join(p0=1, p1=1, p2=1))
        assert standing.owned == {0: 100, 1: 80, 2: 90}

    def test_an_offset_never_moves_back_and_nothing_of_such_a_commit_counts(
        self, join: Callable[..., Membership], views: Source
    ) -> None:
        member = join()
        settle(views, member)
        member.commit({0: 10, 1: 10})
        with pytest.raises(BadInput, match="at 10 already"):
            member.commit({0: 11, 1: 9})
        member.commit({0: 10})
        member.commit({})
        assert settle(views, member)[0].owned == {0: 10, 1: 10, 2: 0}

    def test_only_the_owner_commits_and_the_error_says_who_that_is(self, join: Callable[..., Membership], views: Source) -> None:
        members = [join(), join()]
        owner = owner_of(0, views, *members)
        [other] = [member for member in members if member is not owner]
        with pytest.raises(Fenced, match=owner.id):
            other.commit({0: 5})
        assert {0: 0}.items() <= owner.heartbeat(views).owned.items()

    def test_a_member_that_has_left_can_neither_commit_nor_go_on(self, join: Callable[..., Membership], views: Source) -> None:
        gone = join()
        settle(views, gone)
        gone.leave()
        with pytest.raises(Fenced):
            gone.commit({0: 5})
        with pytest.raises(Fenced):
            gone.heartbeat(views)
        assert settle(views, join())[0].owned[0] == 0

    # A topic that was deleted and made again

    def test_a_topic_made_again_is_refused_to_members_old_and_new(
        self, groups: Groups, join: Callable[..., Membership], views: Source
    ) -> None:
        member = join()
        settle(views, member)
        member.commit({0: 10})
        again = self.made_again(views)
        with pytest.raises(Mismatch, match="deleted and made again"):
            member.heartbeat(again)
        member.leave()
        with pytest.raises(Mismatch, match="group reset web page-views"):
            groups.join("web", again, {}, label="test", lease=self.lease)
        groups.put("web", again, {0: 1, 1: 1, 2: 1})
        [standing] = settle(again, groups.join("web", again, {}, label="test", lease=self.lease))
        assert standing.owned == {0: 1, 1: 1, 2: 1}

    # Putting, forgetting, looking

    def test_put_moves_a_group_either_way_but_not_under_its_members(
        self, groups: Groups, join: Callable[..., Membership], views: Source
    ) -> None:
        member = join()
        settle(views, member)
        member.commit({0: 10, 1: 20, 2: 30})
        with pytest.raises(InUse, match=r"web is reading page-views(?s:.*)" + member.id):
            groups.put("web", views, {0: 3})
        member.leave()
        groups.put("web", views, {0: 3, 1: 25})
        assert settle(views, join())[0].owned == {0: 3, 1: 25, 2: 30}

    def test_a_reader_that_keeps_its_own_positions_is_seen(self, groups: Groups, views: Source) -> None:
        groups.put("flow.shop", views, {0: 3, 1: 4, 2: 5})
        groups.put("flow.shop", views, {0: 6})
        [state] = groups.describe("flow.shop")
        assert not state.members
        assert [(part.partition, part.offset) for part in state.partitions] == [(0, 6), (1, 4), (2, 5)]
        with pytest.raises(BadInput, match="is a flow"):
            groups.join("flow.shop", views, {}, label="test", lease=self.lease)

    def test_positions_tell_every_reader_of_a_topic(self, groups: Groups, join: Callable[..., Membership], views: Source) -> None:
        member = join("web", p0=1, p1=1, p2=1)
        settle(views, member)
        member.commit({0: 10})
        groups.put("flow.shop", views, {0: 5})
        groups.put("flow.shop", self.source("clicks", 1), {0: 7})
        held = groups.positions("page-views")
        assert [(h.reader, h.partition, h.offset) for h in held] == [
            ("flow.shop", 0, 5),
            ("web", 0, 10),
            ("web", 1, 1),
            ("web", 2, 1),
        ]
        assert {h.topic for h in held} == {"page-views"}
        assert all(h.since > 0 for h in held)
        assert list(groups.positions("nothing")) == []

    def test_a_group_can_be_forgotten_but_not_under_its_members(
        self, groups: Groups, join: Callable[..., Membership], views: Source
    ) -> None:
        member = join()
        settle(views, member)
        member.commit({0: 10})
        with pytest.raises(InUse):
            groups.forget("web")
        member.leave()
        with pytest.raises(NotFound, match="does not read topic clicks"):
            groups.forget("web", "clicks")
        groups.forget("web", "page-views")
        assert groups.describe() == []
        with pytest.raises(NotFound):
            groups.forget("web")
        assert settle(views, join(p0=2))[0].owned[0] == 2

    def test_describe_tells_members_owners_offsets_and_what_is_in_hand(
        self, groups: Groups, join: Callable[..., Membership], views: Source
    ) -> None:
        member = join()
        settle(views, member)
        member.commit({1: 17})
        member.heartbeat(views, {1: InFlight(17, 3.5)})
        [state] = groups.describe("web")
        assert (state.group, state.topic, state.topic_id) == ("web", "page-views", views.id)
        assert [(seen.id, seen.label, seen.lease) for seen in state.members] == [(member.id, "test", self.told_lease)]
        assert [(part.owner, part.offset) for part in state.partitions] == [(member.id, 0), (member.id, 17), (member.id, 0)]
        hands = [part.in_flight for part in state.partitions]
        assert hands[0] is None
        assert hands[1] is not None
        assert hands[1].offset == 17
        assert hands[1].seconds >= 3.5
        member.heartbeat(views)
        assert [part.in_flight for part in groups.describe("web")[0].partitions] == [None] * 3

    def test_looking_finds_nothing_and_says_so(self, groups: Groups, join: Callable[..., Membership]) -> None:
        assert groups.describe() == []
        with pytest.raises(NotFound, match="there is no group web"):
            groups.describe("web")
        join("web-analytics")
        with pytest.raises(NotFound, match="did you mean web-analytics"):
            groups.describe("web-analytic")

    @pytest.mark.parametrize("name", ["", "..", "a/b", "a\0b", "x" * 300, "ü"])
    def test_a_name_outside_the_allow_list_is_refused(self, groups: Groups, views: Source, name: str) -> None:
        with pytest.raises(BadName, match="cannot name a group"):
            groups.join(name, views, {}, label="test", lease=self.lease)
        with pytest.raises(BadName, match="cannot name a group"):
            groups.put(name, views, {0: 1})

    def test_what_cannot_be_is_refused(self, groups: Groups, views: Source) -> None:
        with pytest.raises(BadInput):
            groups.put("web", views, {0: -1})
        with pytest.raises(BadInput, match="too short"):
            groups.join("web", views, {}, label="test", lease=0.0)
        assert groups.describe() == []
