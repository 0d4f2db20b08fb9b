"""Members come, go, die and come back as zombies: every partition has one owner, and no committed offset ever moves back."""

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faults.group_ledger import Members, storm
from faults.seeds import SEED
from waiting import until

pytestmark = pytest.mark.faults


@contextmanager
def members(root: Path, planted: str = "-") -> Iterator[Members]:
    made = Members(root, planted)
    try:
        yield made
    finally:
        made.close()


def weather(made: Members, rng: random.Random, steps: int, calm: float) -> None:
    """Twenty members, then a storm, then calm: those that are left, and one more, read everything."""
    for _ in range(20):
        made.start()
    storm(made, rng, steps)
    made.start()
    for _ in range(12):
        made.append(rng)
    assert until(made.caught_up, calm), "no progress in the calm"


def test_in_a_storm_of_members_no_partition_is_owned_twice_and_no_offset_moves_back(tmp_path: Path) -> None:
    print(f"PENSTOCK_SEED={SEED}")
    with members(tmp_path) as made:
        weather(made, random.Random(SEED), steps=25, calm=60)
    made.check()
    assert sum(len(spans) for spans in made.ownership().values()) > 6, "partitions moved"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_in_long_storms_there_is_progress_within_five_seconds_of_calm(tmp_path: Path, seed: int) -> None:
    print(f"PENSTOCK_SEED={SEED}")
    with members(tmp_path) as made:
        weather(made, random.Random(SEED + seed), steps=200, calm=5)
    made.check()


def test_two_owners_at_once_are_caught(tmp_path: Path) -> None:
    """A planted bug: members take what is theirs before it is given up."""
    with members(tmp_path, "grab") as made:
        first = made.start()
        assert until(lambda: made.hear() or any(owned for _, _, owned in made.stories[first].beats))
        made.start()
        count = len(made.stories[first].beats)
        assert until(lambda: made.hear() or len(made.stories) == 2)
        assert until(lambda: made.hear() or len(made.stories[first].beats) > count + 1)
    with pytest.raises(AssertionError, match="owned twice"):
        made.check()


def test_a_zombie_that_comes_back_cannot_commit(tmp_path: Path) -> None:
    """SIGSTOP with a batch in hand, another member takes over, SIGCONT: what the zombie commits is refused."""
    rng = random.Random(SEED)
    with members(tmp_path) as made:
        for _ in range(20):
            made.append(rng)
        zombie = made.start("zombie")
        assert until(lambda: made.hear() or bool(made.said["stopped"]))
        made.start()
        assert until(made.caught_up)
        held = [
            (int(partition), int(offset)) for name, partition, *offsets in made.said["read"] if name == zombie for offset in offsets
        ]
        assert set(held) <= {key for key in made.read if key[1] < made.committed[key[0]]}, "the heir has read them again"
        made.alive[zombie].send(signal.SIGCONT)
        assert until(lambda: made.hear() or [zombie] in made.said["fenced"])
        assert not [words for words in made.said["commit"] if words[0] == zombie]
        assert until(lambda: made.hear() or [zombie] in made.said["left"])
    made.check()
