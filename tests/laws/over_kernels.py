"""Runs cases on the kernels alone, with their state in memory."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock import plan
from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME, WATERMARK
from penstock.core.expression import Call, Column, Expression, Literal, Tree
from penstock.core.time import FOREVER, NEVER, micros
from penstock.kernels.alerts.rows import AlertKernel
from penstock.kernels.alerts.tables import AlertTableKernel
from penstock.kernels.alerts.told import ToldKernel
from penstock.kernels.asof.enrich import EnrichKernel
from penstock.kernels.joins.interval import JoinKernel
from penstock.kernels.judging import watermarks
from penstock.kernels.memory import MemoryRunner, Ran
from penstock.kernels.port import Fates, Kernel
from penstock.kernels.rowwise import as_input, keep_where, with_columns
from penstock.kernels.waiting_rows import WaitingRows
from penstock.kernels.windows import corrections
from penstock.kernels.windows.counts import CountKernel
from penstock.kernels.windows.final import WindowKernel
from penstock.kernels.windows.panes import PaneKernel
from penstock.kernels.windows.running import KeptKernel, RunningKernel
from penstock.kernels.windows.sessions import SessionKernel
from penstock.kernels.windows.sliding import SlidingKernel
from penstock.plan import Aggregate
from penstock.plan.layouts import Layout, Spaced

from .cases import Case, EpochCut, Node, SourceCut
from .law import Outcome, Output, Shown, hold
from .reading import ROWS, Reading, Stamp
from .reference.log import Entry, Mark, Source
from .reference.steps import (
    Alert,
    AlertTable,
    Count,
    Enrich,
    Join,
    Running,
    Session,
    Sliding,
    Slim,
    Told,
    Union,
    Where,
    Window,
    double,
    text,
)

STREAM = pa.schema([("key", pa.string()), ("val", pa.int64())])
TIMESTAMP = pa.timestamp("us", tz="UTC")
CENTS = pa.decimal128(10, 2)
WITH_OTHER = pa.schema([*STREAM, ("other", pa.int64())])
FULL = pa.schema([*STREAM, ("dbl", pa.float64()), ("cents", CENTS), ("txt", pa.string()), ("even", pa.bool_())])


COUNT_AND_SUM = (Aggregate("n", "count", None, pa.int64()), Aggregate("total", "sum", "val", pa.int64()))
EVERY = (
    Aggregate("n", "count", None, pa.int64()),
    Aggregate("known", "count", "val", pa.int64()),
    Aggregate("total", "sum", "val", pa.int64()),
    Aggregate("mean", "avg", "val", pa.float64()),
    Aggregate("least", "min", "val", pa.int64()),
    Aggregate("most", "max", "val", pa.int64()),
    Aggregate("total_dbl", "sum", "dbl", pa.float64()),
    Aggregate("mean_dbl", "avg", "dbl", pa.float64()),
    Aggregate("least_dbl", "min", "dbl", pa.float64()),
    Aggregate("most_dbl", "max", "dbl", pa.float64()),
    Aggregate("total_cents", "sum", "cents", pa.decimal128(20, 2)),
    Aggregate("mean_cents", "avg", "cents", pa.decimal128(14, 6)),
    Aggregate("least_cents", "min", "cents", CENTS),
    Aggregate("most_cents", "max", "cents", CENTS),
    Aggregate("least_txt", "min", "txt", pa.string()),
    Aggregate("most_txt", "max", "txt", pa.string()),
    Aggregate("least_even", "min", "even", pa.bool_()),
    Aggregate("most_even", "max", "even", pa.bool_()),
)
ASKED = pa.schema([*STREAM, ("when", pa.bool_()), ("resolve", pa.bool_())])
Runner = Callable[..., MemoryRunner]
Keyed = Window | Session | Running | Sliding | Count | Alert | AlertTable | Told | Join | Enrich
MICRO = timedelta(microseconds=1)
BY = ("key",)


def session_of(step: Session) -> plan.Session:
    longest = None if step.longest is None else step.longest * MICRO
    return plan.Session(BY, step.gap * MICRO, longest, COUNT_AND_SUM, step.late, step.allowed * MICRO, step.emit)  # type: ignore[arg-type]


VAL, OTHER = Column("val", pa.int64()), Column("other", pa.int64())


def call(op: str, *args: Tree, t: pa.DataType | None = None) -> Call:
    return Call(op, args, t or pa.bool_())


def number(n: int) -> Literal:
    return Literal(n, pa.int64())


CONDITIONS: dict[str, Tree] = {
    "less": call("<", VAL, OTHER),
    "odd": call("=", call("%", OTHER, number(2), t=pa.int64()), number(1)),
    "missing": call("or", call("is_null", VAL), call("is_null", OTHER)),
    "either": call("or", call("in", VAL, number(0), number(1), number(2)), call("=", OTHER, number(3))),
}


def join_of(step: Join) -> plan.Join:
    condition = None if step.where is None else Expression(step.where, pa.bool_(), ("val", "other"), CONDITIONS[step.where])
    right = (("other", "val"),)
    return plan.Join(BY, step.lo * MICRO, step.hi * MICRO, step.how, step.late, right, condition)  # type: ignore[arg-type]


def enrich_of(step: Enrich) -> plan.Enrich:
    wait, history = (None if span is None else span * MICRO for span in (step.wait, step.history))
    allowed = (step.allowed or 0) * MICRO
    right = (("other", "val"),)
    return plan.Enrich(BY, BY, step.how, step.as_of, right, step.updating, allowed, wait, history)  # type: ignore[arg-type]


def windowed(aggregates: Sequence[Aggregate], late: str) -> pa.Schema:
    fields = [("key", pa.string()), ("window_start", TIMESTAMP), ("window_end", TIMESTAMP)]
    told = [("revision", pa.int64()), *([("cause", corrections.TYPE)] if late == "correct" else [])]
    return pa.schema([*fields, *((a.name, a.type) for a in aggregates), *told])


def changing(step: Window | Session | Running) -> pa.Schema:
    """The rows of a step that change."""
    if isinstance(step, Running):
        return pa.schema([("key", pa.string()), *((a.name, a.type) for a in COUNT_AND_SUM)])
    return windowed(COUNT_AND_SUM, step.late)


def with_alert(rows: pa.Schema) -> pa.Schema:
    return pa.schema([*rows, ("alert", pa.string()), ("since", TIMESTAMP)])


@dataclass(frozen=True)
class OverKernels:
    """An implementation of cases. Its parts can be replaced, to see that a wrong one is caught."""

    window: Callable[..., Kernel] = WindowKernel
    panes: Callable[..., Kernel] = PaneKernel
    session: Callable[..., Kernel] = SessionKernel
    alert: Callable[..., Kernel] = AlertKernel
    alert_table: Callable[..., Kernel] = AlertTableKernel
    told: Callable[..., Kernel] = ToldKernel
    join: Callable[..., Kernel] = JoinKernel
    enrich: Callable[..., Kernel] = EnrichKernel
    kept: Callable[..., Kernel] = KeptKernel
    layout: Callable[..., Layout] = Spaced
    runner: Runner = MemoryRunner
    stamp: Stamp = watermarks

    def __call__(self, case: Case) -> Outcome:
        topic = Source("topic", [[] for _ in range(case.topic_partitions)], lateness=None)
        flows = [FlowRun(self, case, nodes, case.sources if i == 0 else [topic], f"{i}/") for i, nodes in enumerate(case.flows)]
        for cut in case.cuts:
            written = flows[cut.flow].epoch(cut)
            if cut.flow == 0 and len(flows) > 1:
                write(topic, *written)
        outcome = Outcome()
        for flow in flows:
            outcome.nodes |= flow.outputs
            outcome.marks |= {name: r.marks for name, r in flow.readings.items()}
            outcome.implausible |= {name: r.implausible for name, r in flow.readings.items()}
        return outcome

    def kernel(self, step: Keyed, slot: int) -> Kernel:
        if isinstance(step, Enrich):
            held = WaitingRows("held", step.wait or 0, slot, 2)
            return self.enrich(enrich_of(step), STREAM, STREAM, WITH_OTHER, held=held, slot_us=slot)
        if isinstance(step, Session):
            return self.session(session_of(step), STREAM, windowed(COUNT_AND_SUM, step.late), slot_us=slot)
        if isinstance(step, Sliding):
            output = pa.schema([*STREAM, *list(windowed(COUNT_AND_SUM, step.late))[1:]])
            return SlidingKernel(["key"], step.size, COUNT_AND_SUM, step.late, STREAM, output, slot_us=slot)  # type: ignore[arg-type]
        if isinstance(step, Count):
            output = windowed(COUNT_AND_SUM, step.late)
            return CountKernel(["key"], step.rows, COUNT_AND_SUM, step.late, STREAM, output)  # type: ignore[arg-type]
        if isinstance(step, Alert):
            node = plan.Alert(BY, "when", "resolve", None if step.every is None else step.every * MICRO, step.late)  # type: ignore[arg-type]
            return self.alert(node, ASKED, with_alert(STREAM), waiting=WaitingRows("waiting", 0, slot, 2))
        if isinstance(step, AlertTable):
            settled = None if isinstance(step.over, Running) else step.over.allowed * MICRO
            rows = changing(step.over)
            given = pa.schema([*rows, ("when", pa.bool_()), ("resolve", pa.bool_())])
            return self.alert_table(plan.AlertTable(BY, "when", "resolve", (), settled), given, with_alert(rows))
        if isinstance(step, Told):
            return self.told(plan.Told(BY, None if step.every is None else step.every * MICRO), with_alert(changing(step.over)))
        if isinstance(step, Running):
            output = changing(step)
            definition = plan.Running(BY, COUNT_AND_SUM)
            if step.keep is None:
                return RunningKernel(definition, STREAM, output)
            return self.kept(definition, STREAM, output, step.keep, slot_us=slot)
        if isinstance(step, Window):
            aggregates = EVERY if step.every_aggregate else COUNT_AND_SUM
            output = windowed(aggregates, step.late)
            layout = self.layout(*(timedelta(microseconds=us) for us in (step.size, step.every or step.size, step.offset)))
            given = (["key"], layout, aggregates, step.late, FULL if step.every_aggregate else STREAM, output)
            if layout.single and not step.updating:
                return self.window(*given)
            return self.panes(*given, step.allowed, step.emit)
        output = STREAM if step.how in ("semi", "anti") else WITH_OTHER
        return self.join(join_of(step), [STREAM, STREAM], output, slot_us=slot)


class FlowRun:
    """One flow: where it is in its sources, its kernels' state, the frontier each node announced, what came out."""

    def __init__(self, parts: OverKernels, case: Case, nodes: list[Node], sources: list[Source], prefix: str) -> None:
        self.nodes, self.prefix = nodes, prefix
        now = any(isinstance(n.step, Enrich) and n.step.as_of == "now" for n in nodes)
        self.readings = {s.name: Reading(s, parts.stamp, appended=now) for s in sources}
        keyed = [n for n in nodes if isinstance(n.step, Keyed)]
        self.kernels = {n.name: parts.kernel(n.step, case.slot) for n in keyed}
        self.runners = {name: parts.runner(k, fanout=case.fanout) for name, k in self.kernels.items()}
        self.frontiers = {n.name: NEVER for n in nodes}
        self.outputs = {prefix + n.name: Output() for n in nodes}

    def epoch(self, cut: EpochCut) -> tuple[pa.Table, int]:
        """Runs an epoch, after one that is lost if the cut says so; gives the last node's rows and its F."""
        for runner in self.runners.values():
            runner.rebucket(cut.buckets)
        if cut.lost:
            Attempt(self, cut.lost, cut.slices).run()
        attempt = Attempt(self, cut.sources, cut.slices)
        attempt.run()
        self.readings = attempt.readings
        for name, ran in attempt.ran.items():
            self.runners[name].commit(ran)
        for node in self.nodes:
            if isinstance(node.step, Enrich):
                self.readings[node.inputs[1]].answered(attempt.ran[node.name].answered)
        for node in self.nodes:
            self._take(node, attempt)
        last = self.nodes[-1].name
        return attempt.rows[last], self.frontiers[last]

    def _take(self, node: Node, attempt: "Attempt") -> None:
        out, F = self.outputs[self.prefix + node.name], attempt.fs[node.name]
        rows = attempt.rows[node.name]
        updating = OP in rows.column_names
        below = [r for r in rows.to_pylist() if not updating and max(r[TIME], r[WATERMARK]) < self.frontiers[node.name]]
        hold(not below, "row below the frontier announced before", node.name, below, self.frontiers[node.name])
        hold(self.frontiers[node.name] <= F, "frontier goes back", node.name)
        self.frontiers[node.name] = F
        shown = [(r[TIME], r["key"], value(node, r), r[POSITION]) for r in rows.to_pylist()]
        out.rows = folded(out.rows, shown, rows[OP].to_pylist()) if updating else out.rows + shown
        out.late += attempt.late[node.name][POSITION].to_pylist()
        out.fates.update(attempt.fates[node.name])


class Attempt:
    """One try at an epoch: changes nothing of the flow it is made for."""

    def __init__(self, flow: FlowRun, cuts: dict[str, SourceCut], slices: int) -> None:
        self.flow, self.cuts, self.slices = flow, cuts, slices
        self.readings = {name: r.copy() for name, r in flow.readings.items()}
        self.rows: dict[str, pa.Table] = {}
        self.late: dict[str, pa.Table] = {}
        self.fs: dict[str, int] = {}
        self.fates: dict[str, Fates] = {}
        self.ran: dict[str, Ran] = {}

    def run(self) -> None:
        for name, reading in self.readings.items():
            self.rows[name], self.fs[name] = reading.epoch(self.cuts[name])
        for node in self.flow.nodes:
            tables = [self.late[i.removesuffix(".late")] if i.endswith(".late") else self.rows[i] for i in node.inputs]
            fs = [self.fs[i.removesuffix(".late")] for i in node.inputs]
            self._step(node, tables, fs)

    def _step(self, node: Node, tables: list[pa.Table], fs: list[int]) -> None:
        name, step = node.name, node.step
        self.late[name], self.fates[name], self.fs[name] = tables[0].slice(0, 0), Counter(), min(fs)
        if isinstance(step, Where):
            self.rows[name], self.fates[name] = keep_where(tables[0], pc.not_equal(tables[0]["key"], "c"))
        elif isinstance(step, Slim):
            self.rows[name] = with_columns(tables[0], [("key", tables[0]["key"]), ("val", slim(tables[0]))])
        elif isinstance(step, Union):
            self.rows[name] = pa.concat_tables([as_input(t, i).select(ROWS.names) for i, t in enumerate(tables)])
        else:
            self._keyed(node, tables, fs)

    def _keyed(self, node: Node, tables: list[pa.Table], fs: list[int]) -> None:
        if isinstance(node.step, Window) and node.step.every_aggregate:
            tables = [full(tables[0])]
        if isinstance(node.step, Alert | AlertTable):
            tables = [asked(tables[0])]
        mark = FOREVER if isinstance(node.step, Enrich) and self.cuts[node.inputs[1]].marks else NEVER  # the end of input
        ran = self.flow.runners[node.name].run([sliced(t, self.slices) for t in tables], fs, *([mark] if mark > NEVER else []))
        self.ran[node.name], self.rows[node.name], self.fates[node.name] = ran, ran.rows, ran.fates
        self.fs[node.name] = self.flow.kernels[node.name].frontier(fs)
        late = [t for t in ran.late if t is not None]
        if late:
            self.late[node.name] = pa.concat_tables(late)


def folded(before: list[Shown], changes: list[Shown], ops: list[int]) -> list[Shown]:
    """The rows after these changes. A change of what is not there, and two changes of one key, are promises broken."""
    fold = {row[3]: row for row in before}
    changed: Counter[bytes] = Counter()
    for row, op in zip(changes, ops, strict=True):
        key = row[3]
        if op in (Op.DELETE, Op.UPDATE_BEFORE):
            hold(fold.pop(key, None) == row, "what is taken back is not what was sent last", row)
        else:
            hold(key not in fold, "sent again without being taken back", row)
            fold[key] = row
        changed[key] += op != Op.UPDATE_BEFORE
    hold(all(n == 1 for n in changed.values()), "two changes of one key in an epoch", changed)
    return list(fold.values())


def sliced(table: pa.Table, slices: int) -> list[pa.Table]:
    """So many slices at most; of no rows none, or one that is empty."""
    if not table.num_rows:
        return [table][: slices % 2]
    size = -(-table.num_rows // slices)
    return [table.slice(at, size) for at in range(0, table.num_rows, size)]


def full(rows: pa.Table) -> pa.Table:
    """All kinds of columns, made from val."""
    vals = rows["val"].to_pylist()
    makers: dict[str, Callable[[int], Any]] = {
        "dbl": double,
        "cents": lambda v: Decimal(v).scaleb(-2),
        "txt": text,
        "even": lambda v: v % 2 == 0,
    }
    for name, make in makers.items():
        rows = rows.append_column(FULL.field(name), pa.array([None if v is None else make(v) for v in vals], FULL.field(name).type))
    return rows


def asked(rows: pa.Table) -> pa.Table:
    """With the conditions of an alert."""
    rests = [None if v is None else v % 3 for v in rows["val" if "val" in rows.column_names else "total"].to_pylist()]
    for name, wanted in (("when", 2), ("resolve", 0)):
        rows = rows.append_column(name, pa.array([None if rest is None else rest == wanted for rest in rests], pa.bool_()))
    return rows


def slim(rows: pa.Table) -> pa.Array:
    columns = [name for name in ("n", "total", "val", "other") if name in rows.column_names]
    return pa.array([sum(v or 0 for v in row.values()) for row in rows.select(columns).to_pylist()], pa.int64())


def value(node: Node, row: dict[str, Any]) -> Any:
    if isinstance(node.step, Window):
        told = (row["revision"],) if node.step.updating else ()
        return (*(row[a.name] for a in (EVERY if node.step.every_aggregate else COUNT_AND_SUM)), *told)
    if isinstance(node.step, Session | Running | Sliding | Count):
        told = (row["revision"],) if isinstance(node.step, Session) and node.step.updating else ()
        return (row["n"], row["total"], *told)
    if isinstance(node.step, Alert):
        return (row["val"], row["alert"], micros(row["since"]))
    if isinstance(node.step, AlertTable | Told):
        return (row["n"], row["total"], row["alert"], row["since"] and micros(row["since"]))
    return (row["val"], row["other"]) if "other" in row else row["val"]


def write(topic: Source, rows: pa.Table, F: int) -> None:
    """Rows in order, then the frontier the epoch used as a mark; a row keeps its position, and its W if unjudged."""
    for r in sorted(rows.to_pylist(), key=lambda r: (r[TIME], r[POSITION])):
        p = sum(map(ord, r["key"] or "")) % len(topic.partitions)
        topic.partitions[p].append(Entry(r[TIME], r["key"], r["val"], 0, r[POSITION], r[WATERMARK]))
    for partition in topic.partitions:
        partition.append(Mark(F))
