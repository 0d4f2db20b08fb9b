"""Tables of other libraries, sent as they are."""

from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from penstock import Producer, Schema, TopicSpec
from penstock.errors import BadInput
from penstock.log.consumer import records
from penstock.log.memory import MemoryLog

ROWS = {"id": ["a", "b"], "n": [1, 2]}


def frame(kind: str) -> Any:
    if kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(ROWS, index=[7, 8])
    return {"polars": pl.DataFrame, "arrow": pa.table, "batch": pa.RecordBatch.from_pydict}[kind](ROWS)  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["arrow", "batch", "polars", "pandas"])
def test_a_data_frame_is_sent_like_a_table_of_arrow(kind: str) -> None:
    topic = MemoryLog().create(TopicSpec("t", 1, Schema.of("id string, n long")))
    with Producer(topic) as producer:
        producer.send_arrow(frame(kind))
    assert [r.value for r in records(topic)] == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


@pytest.mark.parametrize("wrong", [[{"id": "a"}], {"id": ["a"]}, "rows.csv", None])
def test_what_is_no_table_is_refused_with_what_is(wrong: object) -> None:
    topic = MemoryLog().create(TopicSpec("t", 1, Schema.of("id string, n long")))
    with Producer(topic) as producer, pytest.raises(BadInput, match=f"cannot send a {type(wrong).__name__} as a table"):
        producer.send_arrow(wrong)
