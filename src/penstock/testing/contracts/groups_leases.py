"""What a keeper of groups must pass on leases, where a test can run them out by a clock: a part of the suite."""

from collections.abc import Callable

import pytest

from penstock.core.time import FixedClock
from penstock.errors import Fenced
from penstock.log.groups.leases import ManualClock
from penstock.log.groups.port import Groups, InFlight, Membership, Source
from penstock.testing.contracts.groups import LEASE, settle

HOUR = 3_600_000_000


class LeaseContract:
    """A member that is silent for longer than its lease is gone. Needs `clock` and `leases`, which the keeper under test reads."""

    def test_a_member_that_stays_silent_loses_its_partitions_and_cannot_commit(
        self, join: Callable[..., Membership], views: Source, leases: ManualClock
    ) -> None:
        zombie, heir = join(), join()
        mine = settle(views, zombie, heir)[0].owned
        zombie.commit(dict.fromkeys(mine, 10))
        leases.advance(LEASE * 0.9)
        heir.heartbeat(views)
        leases.advance(LEASE * 0.1)
        assert settle(views, heir)[0].owned == {p: 10 if p in mine else 0 for p in range(3)}
        for partition in mine:
            with pytest.raises(Fenced, match=f"not owned by member {zombie.id}(?s:.*)belongs to {heir.id}"):
                zombie.commit({partition: 20})
        with pytest.raises(Fenced, match="lease ran out"):
            zombie.heartbeat(views)
        zombie.leave()
        assert settle(views, heir)[0].owned == {p: 10 if p in mine else 0 for p in range(3)}

    def test_a_lease_that_has_run_out_is_out_even_if_nobody_took_over(
        self, join: Callable[..., Membership], views: Source, leases: ManualClock
    ) -> None:
        alone = join()
        settle(views, alone)
        leases.advance(LEASE)
        with pytest.raises(Fenced, match="nobody owns it"):
            alone.commit({0: 1})

    def test_a_commit_does_not_renew_the_lease_and_a_heartbeat_does(
        self, join: Callable[..., Membership], views: Source, leases: ManualClock
    ) -> None:
        member = join()
        for _ in range(5):
            settle(views, member)
            leases.advance(LEASE * 0.7)
        member.commit({0: 1})
        leases.advance(LEASE * 0.3)
        with pytest.raises(Fenced):
            member.commit({0: 2})

    def test_a_partition_in_hand_is_free_when_the_lease_runs_out(
        self, join: Callable[..., Membership], views: Source, leases: ManualClock
    ) -> None:
        slow = join()
        settle(views, slow)
        slow.heartbeat(views, {0: InFlight(0, 0.0)})
        leases.advance(LEASE + 1)
        [standing] = settle(views, join())
        assert standing.owned.keys() == {0, 1, 2}

    def test_clocks_that_are_set_forward_and_back_change_no_lease(
        self, join: Callable[..., Membership], views: Source, leases: ManualClock, clock: FixedClock, groups: Groups
    ) -> None:
        """FAULTS row 37: leases run by a clock that nobody sets."""
        member = join()
        settle(views, member)
        for jump in (HOUR, -2 * HOUR, HOUR):
            clock.set(clock.now() + jump)
            member.commit({0: 1})
            assert member.heartbeat(views).owned.keys() == {0, 1, 2}
            assert [seen.id for seen in groups.describe("web")[0].members] == [member.id]
        clock.set(clock.now() - HOUR)
        leases.advance(LEASE + 1)
        assert groups.describe("web")[0].members == []

    def test_leases_from_before_a_restart_of_the_machine_are_void(
        self, join: Callable[..., Membership], views: Source, leases: ManualClock
    ) -> None:
        before = join()
        settle(views, before)
        before.commit({0: 5})
        leases.boot, leases.at = "another", 10
        assert settle(views, join())[0].owned == {0: 5, 1: 0, 2: 0}
        with pytest.raises(Fenced):
            before.commit({0: 6})

    def test_describe_tells_how_long_a_member_is_silent_and_a_record_in_hand(
        self, join: Callable[..., Membership], views: Source, leases: ManualClock, groups: Groups
    ) -> None:
        member = join()
        settle(views, member)
        member.heartbeat(views, {2: InFlight(40, 1.5)})
        leases.advance(4)
        [state] = groups.describe("web")
        assert state.members[0].silent == pytest.approx(4)
        assert state.partitions[2].in_flight == InFlight(40, 5.5)
        leases.advance(LEASE)
        [state] = groups.describe("web")
        assert state.members == []
        assert [(part.owner, part.in_flight) for part in state.partitions] == [(None, None)] * 3
