"""What became of one record: in which epoch a flow read it, how its time was judged, which steps let it pass, what took it.

Everything is worked out anew from the log, the engine's marks and the flow's program. Nothing is written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.position import Position
from penstock.core.time import FOREVER, LAST, NEVER, duration_text, micros, text
from penstock.engine.diagnose.locate import Event, Story, epoch_text, letters, unread
from penstock.engine.diagnose.trace import Moved, Piece, applied_to, marks_of, pieces, times_of
from penstock.engine.diagnose.verdicts import Judge
from penstock.engine.execute.program import DEAD, LATE, Program, Reader
from penstock.engine.run.epoch.decision import Decisions
from penstock.engine.run.letters import letter_topic
from penstock.engine.source.spec import SourceSpec
from penstock.log.intake.codec import encode_json
from penstock.log.port import Log, Topic
from penstock.plan import Step
from penstock.plan.meaning import is_of


class Followed:
    """One record on its way through a flow, as the flow's program has it."""

    def __init__(self, program: Program, log: Log, decisions: Decisions, where: Position) -> None:
        self.program, self.log, self.where = program, log, where
        self.decisions, self.last = decisions, decisions.last()
        self.letters = {str(row["step"]): row["letter"] for row in letters(log, program.plan.flow, LATE, where)}
        self.dead = {str(row["step"]): row for row in letters(log, program.plan.flow, DEAD, where)}

    def story(self) -> Story:
        events: list[Event] = []
        read = False
        for name, spec in self.program.sources.items():
            if spec.topic == self.where.topic and not spec.static:
                epoch = epoch_text(self.decisions, name, self.where)
                read = read or epoch is not None
                events += self._source(spec, epoch)
        changed = self.last is not None and not is_of(self.program.plan, self.last.fingerprint)
        note = "its file has changed since it last ran: this is how it would be now" if changed else None
        return Story(self.program.plan.flow, read, tuple(events), note)

    def _source(self, spec: SourceSpec, epoch: str | None) -> Iterator[Event]:
        if epoch is None:
            yield Event(spec.step, "not read", unread(self.decisions, spec.step, self.where))
            return
        topic = self.log.topic(spec.topic)
        piece = self._piece(topic, spec)
        if not piece.rows.num_rows:
            yield self._taken_out(topic, spec, piece, epoch)
            return
        time, at = int(times_of(piece.rows)[0]), int(piece.of.watermark(spec.lateness)[0])
        facts = {"time": text(time), "watermark": text(at)}
        yield Event(spec.step, "read", f"{epoch}; time {text(time)}; {_cause(spec, piece.of, at)}", facts=facts)
        yield from self._push(spec.step, piece.rows, piece.of, spec)

    def _piece(self, topic: Topic, spec: SourceSpec) -> Piece:
        span = (self.where.partition, self.where.offset, self.where.offset + 1)
        return next(pieces(topic, spec, *span, marks_of(self.decisions)))

    def _taken_out(self, topic: Topic, spec: SourceSpec, piece: Piece, epoch: str) -> Event:
        letter = next(letters(self.log, self.program.plan.flow, DEAD, self.where), {})
        reason = piece.read.dead[0].reason if piece.read.dead else "it cannot be read"
        where = f" → {letter['letter']}" if letter else ""
        if not piece.read.fates["implausible"]:
            return Event(spec.step, "dead", f"{epoch}; dead: {reason}{where}")
        appended = piece.read.dead[0].appended
        anyway = self._piece(topic, replace(spec, future=LAST))
        if not anyway.rows.num_rows:
            return Event(spec.step, "implausible", f"{epoch}; implausible: {reason}{where}")
        time = int(times_of(anyway.rows)[0])
        beyond = _long(time - appended)
        return Event(
            spec.step,
            "implausible",
            f"{epoch}; implausible: its time {text(time)} lies {beyond} beyond its append time {text(appended)}{where}",
            (f'a topic made with future="{beyond}"',),
            {"time": text(time)},
        )

    def _push(self, step: str, rows: pa.Table, of: Moved, spec: SourceSpec) -> Iterator[Event]:
        for reader in self.program.readers[step]:
            target = self.program.plan.step(reader.name) if reader.kind != "output" else None
            if target is None:
                kind, _, name = reader.name.partition(".")
                yield Event(step, "written", f"written to {kind} {name}")
            elif target.name in self.dead:
                letter = self.dead[target.name]
                yield Event(target.name, "dead", f"dead: {letter.get('expression')}: {letter['reason']} → {letter['letter']}")
            elif reader.kind == "keyed":
                yield from self._keyed(target, reader, rows, of, spec)
            elif reader.kind != "late":
                yield from self._rowwise(target, rows, of, spec)

    def _rowwise(self, step: Step, rows: pa.Table, of: Moved, spec: SourceSpec) -> Iterator[Event]:
        applied, condition = applied_to(step, rows), step.node.kept_by()
        if applied is None:
            yield Event(step.name, "not followed", "evaluated by Spark SQL, not followed")
        elif applied.failures:
            _, expression, cause = applied.failures[0]
            yield Event(step.name, "dead", f"dead: {expression}: {cause}")
        elif condition and not applied.rows.num_rows:
            values = self._values(rows, condition.columns)
            yield Event(step.name, "filtered", f"filtered: {condition.text} is not true of {values}")
        else:
            made = "" if step.node.keeps_columns else f": {self._values(applied.rows, step.schema.names)}"
            yield Event(step.name, "passed", f"passed on{made}")
            yield from self._push(step.name, applied.rows, of, spec)

    def _values(self, rows: pa.Table, names: Sequence[str]) -> str:
        return encode_json(rows.select([n for n in names if n in rows.column_names]))[0].decode()

    def _keyed(self, step: Step, reader: Reader, rows: pa.Table, of: Moved, spec: SourceSpec) -> Iterator[Event]:
        own = step.node.own_key()
        key = f" under {self._values(rows, own)}" if own else ""
        if not step.node.judging():
            yield self._unjudged(step, key, rows, of, spec)
            return
        judge, times = Judge.of(step), times_of(rows)
        pairs = list(zip(*(values.tolist() for values in judge.pairs(times)), strict=True))
        if not pairs:
            yield Event(step.name, "outside", "outside: its time lies in no window")
        refused = False
        for _, start, end in pairs:
            event = self._judged(step, judge, (start, end), key, of, spec)
            refused = refused or event.fate == "diverted"
            yield event
        if refused:
            yield from self._late(step, reader.port, rows, of, spec)

    def _unjudged(self, step: Step, key: str, rows: pa.Table, of: Moved, spec: SourceSpec) -> Event:
        """Steps that call no row late; one that forgets silent keys may find a row too old."""
        keep, time = step.node.forgets(), int(times_of(rows)[0])
        behind = int(of.watermark(spec.lateness)[0]) - time
        if keep is None or behind < micros(keep):
            return Event(step.name, "passed", f"taken{key}: this step calls no row late{self._goes(step)}")
        changes = [f"a keep of more than {_long(behind)}"] if behind < FOREVER // 2 else []
        if spec.lateness is not None and int(of.marked[0]) < time + micros(keep):
            changes.append(f"a lateness of more than {_long(int(of.moved[0]) - time - micros(keep))}")
        return Event(step.name, "too old", f"too old: the watermark lay {_long(behind)} beyond its time", tuple(changes))

    def _judged(self, step: Step, judge: Judge, window: tuple[int, int], key: str, of: Moved, spec: SourceSpec) -> Event:
        start, end = window
        at = of.watermark(spec.lateness)
        ends = np.array([end])
        name = f"window {text(start)} to {text(end)}: " if judge.layout else ""
        facts: dict[str, Any] = {"window_start": text(start), "window_end": text(end)} if judge.layout else {}
        if judge.on_time(ends, at)[0]:
            return Event(step.name, "on time", f"{name}on time{key}{self._done(step, end, judge)}{self._goes(step)}", facts=facts)
        behind = int(at[0]) - end
        facts["late_by_seconds"] = behind / 1e6
        what = "its end" if judge.layout else "its time"
        by = f"the watermark lay {_long(behind)} beyond {what}" if behind else f"the watermark had reached {what}"
        changes = tuple(_changes(judge, of, spec, end))
        if judge.corrects(ends, at)[0]:
            return Event(step.name, "corrected", f"{name}late, and corrected it{key}: {by}{self._goes(step)}", changes, facts)
        fate = "ignored" if judge.late == "ignore" else "diverted"
        return Event(step.name, fate, f"{name}late, {fate}: {by}", changes, facts)

    def _done(self, step: Step, end: int, judge: Judge) -> str:
        """How far the step is, where a window has an end."""
        if judge.layout is None or self.last is None:
            return ""
        frontier = self.last.frontiers.get(step.inputs[0], NEVER)
        return ", complete" if frontier >= end else f", still open: time has come to {text(frontier)}"

    def _goes(self, step: Step) -> str:
        outputs = [reader.name.replace(".", " ", 1) for reader in self.program.readers[step.name] if reader.kind == "output"]
        return f" → {', '.join(outputs)}" if outputs else ""

    def _late(self, step: Step, port: int, rows: pa.Table, of: Moved, spec: SourceSpec) -> Iterator[Event]:
        """Where diverted rows go: to `.late`, where they are followed on, or to the flow's own topic."""
        for reader in self.program.readers[step.name]:
            if reader.kind == "late" and reader.port == port:
                late = self.program.plan.step(reader.name)
                yield Event(late.name, "passed", f"passed on as a late row of {step.name}")
                yield from self._push(late.name, rows, of, spec)
        if step.name in self.program.late_sink:
            name = letter_topic(self.program.plan.flow, LATE)
            letter = self.letters.get(step.name)
            yield Event(step.name, "written", f"written to {letter}" if letter else f"not yet in topic {name}")


def _cause(spec: SourceSpec, of: Moved, at: int) -> str:
    """Why the watermark at the row is what it is."""
    if spec.versions:
        return f"a version of the row of its {', '.join(spec.versions.key)}"
    if at <= NEVER:
        return "no watermark yet"
    if spec.written:
        return f"watermark {text(at)}, as the flow that wrote it gave it"
    if int(of.marked[0]) == at:
        return f"watermark {text(at)}: " + ("the input was ended before it" if at >= FOREVER else "a mark stands before it")
    if int(of.ours[0]) == at:
        return f"watermark {text(at)}: the engine marked the partition, for it was new or idle while others were busy"
    lateness = spec.lateness or 0
    return f"watermark {text(at)}: a row of {text(at + lateness)} came before it, lateness {_long(lateness)}"


def _changes(judge: Judge, of: Moved, spec: SourceSpec, end: int) -> Iterator[str]:
    """The settings under which a late row would have been on time, or have corrected."""
    needed = int(of.moved[0]) - end
    more = "more than" if judge.layout else "at least"
    if spec.lateness is not None and judge.on_time(np.array([end]), of.marked)[0]:
        yield f"a lateness of {more} {_long(needed)}"
        if int(of.ours[0]) == int(of.watermark(spec.lateness)[0]):
            yield "a longer idle="
    behind = int(of.watermark(spec.lateness)[0]) - end
    if behind < FOREVER // 2 and not judge.corrects(np.array([end]), of.watermark(spec.lateness))[0] and judge.may_correct:
        yield f'late="correct" and an allowed of {more} {_long(behind)}'


def _long(us: int) -> str:
    return duration_text(timedelta(microseconds=us))
