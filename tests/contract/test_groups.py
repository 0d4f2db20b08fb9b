"""Every keeper of groups passes the same suite."""

from pathlib import Path

import pytest

from penstock.core.time import FixedClock
from penstock.log.groups.leases import ManualClock
from penstock.log.groups.memory import MemoryGroups
from penstock.log.groups.sqlite import SqliteGroups
from penstock.testing.contracts.groups import GroupsContract
from penstock.testing.contracts.groups_leases import LeaseContract


class Timed(LeaseContract, GroupsContract):
    """Keepers whose clocks a test can hold."""

    @pytest.fixture(autouse=True)
    def clocks(self) -> None:
        self.wall, self.even = FixedClock(1_705_312_800_000_000), ManualClock()

    @pytest.fixture
    def clock(self) -> FixedClock:
        return self.wall

    @pytest.fixture
    def leases(self) -> ManualClock:
        return self.even


class TestMemoryGroups(Timed):
    def make(self, place: Path) -> MemoryGroups:
        return MemoryGroups(self.wall, self.even)


class TestSqliteGroups(Timed):
    def make(self, place: Path) -> SqliteGroups:
        return SqliteGroups(place / "log" / "groups.db", self.wall, self.even)
