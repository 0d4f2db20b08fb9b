"""Topics for any Spark job: `spark.read`, `readStream`, `write` and `writeStream` with `format("penstock")`.

from penstock.engine.datasource.format import register

register(spark)
orders = spark.read.format("penstock").load("orders")
"""

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.engine.datasource.options import Door, ReadOptions, read_options, write_options
from penstock.engine.datasource.read import TopicReader, TopicStream
from penstock.engine.datasource.rows import Shape, default_schema
from penstock.engine.datasource.write import TopicStreamWriter, TopicWriter, prepared_topic
from penstock.errors import BadInput
from penstock.log.open import open_log
from penstock.storage.home import find_home

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FORMAT = "penstock"


def register(spark: "SparkSession", home: str | Path | None = None) -> None:
    """Makes `format("penstock")` known to this session. home: where topics are when a query does not say; None: where this
    process finds it now (PENSTOCK_HOME, else the nearest .penstock). Of several sessions in one process the last one's home counts
    for writes that name none."""
    chosen = Path(home).expanduser().absolute() if home is not None else find_home()
    # Spark takes a class and makes its objects in other processes, which may find another home: so the class carries it.
    source = type("PenstockSource", (PenstockSource,), {"default_home": str(chosen)})
    active = spark.active()
    try:
        # A DataFrame's write looks for the format in the active session, whatever session the DataFrame is of; and a session
        # in which it is new refuses it as long as the active one, being another, has it.
        for session in (active, spark):
            _make_active(session)
            session.dataSource.register(source)
    finally:
        _make_active(active)


def _make_active(session: "SparkSession") -> None:
    """For this thread, as PySpark itself does when a DataFrame is made from Python rows."""
    session._jvm.SparkSession.setActiveSession(session._jsparkSession)


class PenstockSource(DataSource):  # type: ignore[misc]  # pyspark brings no types along
    """What Spark asks when a query names `format("penstock")`."""

    default_home = ""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        # Spark does not say here whether a batch or a stream is meant, so options of both pass.
        options = {k: v for k, v in self.options.items() if k.lower() not in ("endingoffsets", "maxrowsperbatch")}
        wanted = read_options(options, Path(self.default_home), "read")
        spec = open_log(wanted.home).topic(wanted.topic).spec
        return from_arrow_schema(default_schema(spec, wanted.system), prefer_timestamp_ntz=False)

    def reader(self, schema: StructType) -> TopicReader:
        options = self._read_options("read")
        return TopicReader(options, _shape(options, schema))

    def streamReader(self, schema: StructType) -> TopicStream:
        options = self._read_options("readStream")
        return TopicStream(options, _shape(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        options = write_options(self.options, Path(self.default_home), "write")
        _refuse_overwriting(options.topic, overwrite)
        prepared_topic(options, _arrow(schema))
        return TopicWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:
        options = write_options(self.options, Path(self.default_home), "writeStream")
        _refuse_overwriting(options.topic, overwrite)
        prepared_topic(options, _arrow(schema))
        return TopicStreamWriter(options)

    def _read_options(self, door: Door) -> ReadOptions:
        return read_options(self.options, Path(self.default_home), door)


def _shape(options: ReadOptions, schema: StructType) -> Shape:
    return Shape.of(open_log(options.home).topic(options.topic).spec, _arrow(schema), options.system)


def _arrow(schema: StructType) -> "pa.Schema":
    found: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return found


def _refuse_overwriting(topic: str, overwrite: bool) -> None:
    if overwrite:
        raise BadInput(
            f"topic {topic} can only be added to, not overwritten",
            hint='use .mode("append"), or .outputMode("append") for a stream; `penstock topic delete` removes what is there',
        )
