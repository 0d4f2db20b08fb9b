"""Flows over Kafka against the same flows over the embedded log, and into Kafka exactly once. A part of kafka.py."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from events import LATENESS, PARTITIONS, append, ddl, events
from flows import Bench, Ran
from measuring import median

from penstock import Flow, Tumbling, agg
from penstock.core.columns import VALUE
from penstock.core.schema import Schema
from penstock.log.intake.text import json_objects
from penstock.log.port import TopicSpec

_FRAME = 10_000
_WARM = 20


def typed(table: pa.Table) -> tuple[TopicSpec, pa.Table]:
    return TopicSpec("events", PARTITIONS, Schema(table.schema), time="ts", durability="os"), table


def raw(table: pa.Table) -> tuple[TopicSpec, pa.Table]:
    """The same rows as JSON text in a raw topic: what Kafka holds, in our own log."""
    return TopicSpec("events", PARTITIONS, durability="os"), pa.table({VALUE: json_objects(table)})


def windows(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    """Tumbling count and sum per key into a view; wish: log (a URL or nothing), form, rows, keys, epochs, repeat."""
    table = events(wish["rows"], wish["keys"])
    bench = Bench(directory / f"home-{wish['form']}", wish["log"] or None)
    spec, stored = raw(table) if wish["form"] == "raw" else typed(table)
    append(bench.runtime.log.create(spec), stored, _FRAME)
    number = 0

    def define(flow: Flow) -> None:
        stream = flow.stream("events", ddl(table), time="ts", lateness=LATENESS)
        stream.window(Tumbling("1 minute"), by="k").agg(n=agg.count(), total=agg.sum("v")).view(f"out{number}")

    bench.run(define, max(1_000, wish["rows"] // _WARM), wish["warm"])
    results: dict[str, Any] = {}
    for epoch in wish["epochs"]:
        runs = []
        for _ in range(wish["repeat"]):
            number += 1
            runs.append(bench.run(define, epoch))
        results[str(epoch)] = told(runs)
    results["sums"] = sorted(bench.view(f"out{number}").select(["k", "window_start", "n", "total"]).to_pylist(), key=str)[:50]
    results["sums"] = [str(row) for row in results["sums"]]
    return results


def into_kafka(directory: Path, wish: dict[str, Any]) -> dict[str, Any]:
    """Every row of one topic into another, JSON in and JSON out; `deliver` is what the transactions took."""
    table = events(wish["rows"], wish["keys"])
    bench = Bench(directory / "home-into", wish["log"] or None)
    spec, stored = typed(table)
    append(bench.runtime.log.create(replace(spec, name="source")), stored, _FRAME)
    number = 0

    def define(flow: Flow) -> None:
        flow.stream("source", ddl(table), time="ts", lateness=LATENESS).to(f"out{number}", key="k", partitions=PARTITIONS)

    bench.run(define, max(1_000, wish["rows"] // _WARM), 3)
    results = {}
    for epoch in wish["epochs"]:
        runs = []
        for _ in range(wish["repeat"]):
            number += 1
            runs.append(bench.run(define, epoch, threaded=False))
            there = bench.runtime.log.topic(f"out{number}")
            rows = sum(chunk.frame.count for p in there.ends() for chunk in there.read(p, columns=[]))
            if rows != wish["rows"]:
                raise SystemExit(f"{rows:,} rows in the topic, {wish['rows']:,} were read")
        delivered = median(sum(r.steps["deliver"] for r in run.reports) for run in runs)
        results[str(epoch)] = told(runs) | {"delivered": wish["rows"] / delivered}
    return results


def told(runs: list[Ran]) -> dict[str, float]:
    return {
        "rate": median(run.rate for run in runs),
        "cpu": median(run.cpu for run in runs),
        "foreign": median(run.foreign for run in runs),
        "epochs": len(runs[-1].reports),
    }
