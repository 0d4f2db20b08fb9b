"""The steps of a case as a user writes them, and what their rows say."""

from typing import Any

import pyarrow as pa

from penstock import Count as Counts
from penstock import Hopping, agg
from penstock import Session as Sessions
from penstock import Sliding as Slides
from penstock.core.time import micros
from penstock.flow.stream import Stream

from .cases import Node
from .reference.steps import Alert, AlertTable, Count, Enrich, Join, Running, Session, Sliding, Slim, Told, Union, Where, Window

CONDITIONS = {
    "less": "val < {other}",
    "odd": "{other} % 2 = 1",
    "missing": "val is null or {other} is null",
    "either": "val in (0, 1, 2) or {other} = 3",
}


def built(node: Node, ins: list[Stream]) -> Stream:
    step, name = node.step, node.name
    match step:
        case Where():
            return ins[0].where("key <> 'c'", name=name)
        case Slim():
            return ins[0].map_arrow(_slim, "key string, val long", name=name)
        case Union():
            left, right = _narrow(node, ins)
            return left.union(right, name=name)
        case Join():
            left, right = _narrow(node, ins)
            within = (f"{step.lo} us", f"{step.hi} us")
            where = None if step.where is None else CONDITIONS[step.where].format(other=f"{name.replace('-', '_')}_1_val")
            return left.join(right, on="key", within=within, how=step.how, where=where, late=step.late, name=name)
        case Enrich():
            (stream,) = _narrow(node, ins[:1])
            spans = {"allowed": step.allowed, "wait": step.wait, "history": step.history}
            told: dict[str, Any] = {what: None if span is None else f"{span} us" for what, span in spans.items()}
            late = "correct" if step.updating else "keep"
            return stream.enrich(ins[1], on="key", how=step.how, as_of=step.as_of, late=late, name=name, **told)
        case Window():
            kind = Hopping(f"{step.size} us", every=f"{step.every or step.size} us", offset=f"{step.offset} us")
            allowed = f"{step.allowed} us" if step.late == "correct" else None
            windowed = ins[0].window(kind, by="key", late=step.late, allowed=allowed, emit=step.emit)
            return windowed.agg(n=agg.count(), total=agg.sum("val"), name=name)
        case Session():
            sessions = Sessions(f"{step.gap} us", longest=None if step.longest is None else f"{step.longest} us")
            allowed = f"{step.allowed} us" if step.late == "correct" else None
            windowed = ins[0].window(sessions, by="key", late=step.late, allowed=allowed, emit=step.emit)
            return windowed.agg(n=agg.count(), total=agg.sum("val"), name=name)
        case Sliding():
            sliding = ins[0].window(Slides(f"{step.size} us"), by="key", late=step.late)
            return sliding.agg(n=agg.count(), total=agg.sum("val"), name=name)
        case Count():
            counted = ins[0].window(Counts(step.rows), by="key", late=step.late)
            return counted.agg(n=agg.count(), total=agg.sum("val"), name=name)
        case Alert():
            every = None if step.every is None else f"{step.every} us"
            return ins[0].alert(when="val % 3 = 2", resolve="val % 3 = 0", by="key", every=every, late=step.late, name=name)
        case AlertTable():
            every = None if step.every is None else f"{step.every} us"
            return ins[0].alert(when="total % 3 = 2", resolve="total % 3 = 0", by="key", every=every, name=name)
        case Told():
            return ins[0]
        case Running():
            groups = ins[0].group_by("key", keep=None if step.keep is None else f"{step.keep} us")
            return groups.agg(n=agg.count(), total=agg.sum("val"), newest=agg.max("at"), name=name)


def _narrow(node: Node, ins: list[Stream]) -> list[Stream]:
    """Each input under a name of its own, with key and val alone."""
    return [s.map_arrow(_key_and_val, "key string, val long", name=f"{node.name}-{i}") for i, s in enumerate(ins)]


def _key_and_val(rows: pa.Table) -> pa.Table:
    return rows.select(["key", "val"])


def _slim(rows: pa.Table) -> pa.Table:
    names = [n for n in rows.column_names if n not in ("key", "at", "window_start", "window_end", "revision")]
    values = [sum(v or 0 for v in row.values()) for row in rows.select(names).to_pylist()]
    return pa.table({"key": rows.column("key"), "val": pa.array(values, pa.int64())})


def value(node: Node, row: dict[str, Any]) -> Any:
    if isinstance(node.step, Window | Session):
        return (row["n"], row["total"], row["revision"]) if node.step.updating else (row["n"], row["total"])
    if isinstance(node.step, Running | Sliding | Count):
        return (row["n"], row["total"])
    if isinstance(node.step, Alert):
        return (row["val"], row["alert"], micros(row["since"]))
    if isinstance(node.step, AlertTable | Told):
        return (row["n"], row["total"], row["alert"], row["since"] and micros(row["since"]))
    if isinstance(node.step, Join | Enrich):
        others = [row[n] for n in row if n.endswith("_val")]
        return (row["val"], *others) if others else row["val"]
    return row["val"]
