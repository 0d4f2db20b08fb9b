"""Is the harness of groups worth its word? Each test plants one bug in a copy of the rules and shows that it is caught."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from faults.groups_machine import GroupMachine
from faults.planted import WallLeases, caught_by
from penstock.core.time import FixedClock
from penstock.errors import PenstockError
from penstock.log.groups import rules
from penstock.log.groups.leases import Beat, ManualClock
from penstock.log.groups.memory import MemoryGroups
from penstock.log.groups.port import InFlight, Source
from penstock.log.groups.rules import State

pytestmark = pytest.mark.faults
Patch = pytest.MonkeyPatch


def caught(machine: type[GroupMachine] = GroupMachine, examples: int = 1000) -> bool:
    return caught_by(machine, examples, steps=30)


def test_the_rules_without_a_planted_bug_pass() -> None:
    assert not caught(examples=50)


def test_a_lease_that_never_runs_out_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(rules, "sweep", lambda state, now: None)
    assert caught()


class MachineByTheWall(GroupMachine):
    def make(self, clock: FixedClock, leases: ManualClock) -> MemoryGroups:
        return MemoryGroups(clock, WallLeases(clock, leases))


def test_a_lease_that_runs_by_the_wall_is_caught() -> None:
    assert caught(MachineByTheWall)


def test_a_commit_by_somebody_who_is_not_the_owner_is_caught(monkeypatch: Patch) -> None:
    def unchecked(state: State, id: str, offsets: Mapping[int, int], now: Beat, wall: int) -> None:
        rules.sweep(state, now)
        for partition, offset in offsets.items():
            if partition in state.parts and offset >= state.parts[partition].offset:
                state.change(partition, offset=offset, moved=wall)

    monkeypatch.setattr(rules, "commit", unchecked)
    assert caught()


def test_an_offset_that_moves_back_is_caught(monkeypatch: Patch) -> None:
    real = rules.commit

    def backwards(state: State, id: str, offsets: Mapping[int, int], now: Beat, wall: int) -> None:
        kept = dict(state.parts)
        for partition in offsets.keys() & kept.keys():
            state.change(partition, offset=0)
        try:
            real(state, id, offsets, now, wall)
        except PenstockError:
            state.parts = kept
            raise

    monkeypatch.setattr(rules, "commit", backwards)
    assert caught()


def test_half_a_commit_is_caught(monkeypatch: Patch) -> None:
    real = rules.commit

    def one_by_one(state: State, id: str, offsets: Mapping[int, int], now: Beat, wall: int) -> None:
        for partition, offset in offsets.items():
            real(state, id, {partition: offset}, now, wall)

    monkeypatch.setattr(rules, "commit", one_by_one)
    assert caught()


def test_a_partition_that_is_taken_before_it_is_given_up_is_caught(monkeypatch: Patch) -> None:
    real = rules.pass_on

    def grabbing(state: State, id: str, busy: Mapping[int, InFlight], now: Beat) -> None:
        for number, part in list(state.parts.items()):
            if part.target == id and part.owner not in (None, id):
                state.change(number, owner=id)
        real(state, id, busy, now)

    monkeypatch.setattr(rules, "pass_on", grabbing)
    assert caught()


def test_a_busy_partition_that_is_given_away_is_caught(monkeypatch: Patch) -> None:
    real = rules.pass_on
    monkeypatch.setattr(rules, "pass_on", lambda state, id, busy, now: real(state, id, {}, now))
    assert caught()


def test_partitions_that_are_shared_unevenly_are_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(rules, "assign", lambda now, members: dict.fromkeys(now, members[0] if members else None))
    assert caught()


def test_offsets_of_another_topic_of_that_name_are_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(rules, "same_topic", lambda state, source: None)
    assert caught()


def test_a_reset_under_living_members_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(rules, "refuse_members", lambda state, now: rules.sweep(state, now))
    assert caught()


def test_a_new_member_that_moves_the_group_to_its_own_beginning_is_caught(monkeypatch: Patch) -> None:
    real = rules.join

    def restarting(state: State, member: rules.Member, source: Source, begin: Mapping[int, int], wall: int) -> None:
        real(state, member, source, begin, wall)
        for number, part in state.parts.items():
            state.parts[number] = replace(part, offset=begin.get(number, 0))

    monkeypatch.setattr(rules, "join", restarting)
    assert caught()
