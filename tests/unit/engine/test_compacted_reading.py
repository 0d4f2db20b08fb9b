"""Rows keep their watermark when others before them were compacted away, wherever the reading is cut."""

import random

import pytest

from faults.cleaning_script import Script
from penstock.core.columns import WATERMARK
from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.engine.source.read import ADDRESS, Range, read
from penstock.engine.source.spec import SourceSpec
from penstock.log.file.topic import FileTopic
from penstock.storage.memory import MemoryStorage

SOURCE = SourceSpec("s", "t", Schema.of("id long, at timestamp"), ("id",), "at", 5_000_000, 0, False, False, True, 86_400_000_000)


def watermarks(topic: FileTopic, cuts: list[int]) -> dict[int, int]:
    """W of every row that is there, by its offset, read in these pieces."""
    found: dict[int, int] = {}
    for start, stop in zip([topic.ends()[0].first, *cuts], [*cuts, topic.ends()[0].next], strict=True):
        for piece in read(topic, SOURCE, Range("s", 0, start, stop, NEVER, NEVER)):
            if piece.rows is None:
                continue
            offsets = piece.rows[ADDRESS].to_numpy() & ((1 << 44) - 1)
            found |= dict(zip(offsets.tolist(), piece.rows[WATERMARK].to_pylist(), strict=True))
    return found


@pytest.mark.parametrize("seed", range(0, 24, 4))
def test_rows_keep_their_watermark_when_others_are_compacted_away(seed: int) -> None:
    script, rng = Script(seed, MemoryStorage()), random.Random(seed)
    script.fill(40)
    before = watermarks(script.topic, [])
    for _ in range(2):
        script.clean()
        end = script.topic.ends()[0].next
        for cuts in ([], sorted(rng.sample(range(1, end), 3)), list(range(1, end))):
            after = watermarks(script.log().topic("t"), cuts)
            assert 0 < len(after) < len(before)
            assert after == {offset: before[offset] for offset in after}
        script.fill(10)
        before |= {o: w for o, w in watermarks(script.topic, []).items() if o >= end}
