"""Clocks of devices set right, from three times: when the device says it happened, when the device says it sent it, when it
was received.

received − sent is how far the device's clock is off, and what the network took. The network takes now more, now less; so the
smallest of it that a device has shown within the last `span` of received time stands for its clock: two events of one device
are moved by the same amount, and jitter does not change their order. Rows are taken in the order of the log; what a device
has shown is its state: at most one number for each of the STEPS steps of the span.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import table_of
from penstock.core.columns import HASH
from penstock.core.hashing import hash64
from penstock.core.time import FIRST, FOREVER, LAST, NEVER
from penstock.kernels.aggregates.ranges import folded
from penstock.kernels.changes import touched
from penstock.kernels.columns import numbers, plain, sorted_by_hash
from penstock.kernels.keyed import key_numbers

STEPS = 60  # the span moves on in so many steps, so that a device is remembered by few numbers
STEP, DELAY = "__step", "__delay"  # int64: columns of the state

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rule:
    """How clocks are set right; microseconds."""

    by: tuple[str, ...]  # the columns that name a device
    span: int
    future: int  # a time further than this beyond the append time is implausible,
    past: int  # and so is one further than this before it


class Readings(NamedTuple):
    """What consecutive rows of one partition say."""

    devices: pa.Table  # the by columns
    happened: Times
    sent: Times
    received: Times
    known: Mask  # sent and received are there
    alive: Mask  # happened is there, and the row can be read
    appended: Times


class Corrected(NamedTuple):
    times: Times
    uncertainty: Times  # how much longer this row took than the quickest; only where `sure`
    sure: Mask
    plausible: Mask
    state: pa.Table  # of the devices of these rows


def correct(rule: Rule, readings: Readings, state: pa.Table | None) -> Corrected:
    """The rows' times set right. state: what is known of their devices, as `recall` gives it.

    A row without sent or received, or with such that no clock can explain, is moved as its device's rows before it were; it
    teaches nothing. Where nothing is known of the device its time stays as it is."""
    devices = _plain(readings.devices)
    teaches = _teaches(rule, readings)
    step = max(1, rule.span // STEPS)
    own = np.where(teaches, readings.received - readings.sent, FOREVER)
    steps = np.where(teaches, readings.received // step, NEVER)
    if state is not None:
        devices = pa.concat_tables([state.select(devices.column_names), devices])
        own = np.concatenate([numbers(state, DELAY), own])
        steps = np.concatenate([numbers(state, STEP), steps])
    codes = _codes(devices)
    order = np.argsort(codes, kind="stable")
    shown = _Shown.of(codes[order], steps[order], own[order], max(1, rule.span // step))
    smallest = np.empty_like(own)
    smallest[order] = shown.smallest
    mine = len(own) - len(readings.happened)
    offset = smallest[mine:]
    times = readings.happened + np.where(offset < FOREVER, offset, 0)
    uncertainty = np.where(teaches, own[mine:] - offset, 0)
    return Corrected(times, uncertainty, teaches, _plausible(rule, readings, times), _remembered(devices, order, shown))


def recall(runs: Sequence[pa.Table], by: Sequence[str], devices: pa.Table) -> pa.Table | None:
    """What the runs of state, oldest first, know of the devices of these rows."""
    found = touched(runs, np.unique(_hashes(_plain(devices)))) if runs else []
    return merged(found, by) if found else None


def merged(runs: Sequence[pa.Table], by: Sequence[str]) -> pa.Table:
    """Several runs, oldest first, as one: the newest run that knows a device says all there is to say of it."""
    together = pa.concat_tables(runs)
    codes = _codes(together.select(list(by)))
    run = np.repeat(np.arange(len(runs)), [r.num_rows for r in runs])
    newest = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    np.maximum.at(newest, codes, run)
    return sorted_by_hash(together.filter(pa.array(run == newest[codes])).combine_chunks())


class _Shown(NamedTuple):
    """Rows in order of device, then log: what each device has shown up to each row."""

    codes: Times
    latest: Times  # the step that received time has come to; it never goes back
    own: Times
    smallest: Times
    steps: int

    @classmethod
    def of(cls, codes: Times, at: Times, own: Times, steps: int) -> "_Shown":
        values, rank = np.unique(at, return_inverse=True)
        base = codes * (len(values) + 1)
        key = np.maximum.accumulate(base + rank)  # codes rise, so each device begins anew
        latest = values[key - base]
        first = np.searchsorted(key, base + np.searchsorted(values, latest - (steps - 1)))
        return cls(codes, latest, own, folded(own, first, np.arange(1, len(own) + 1), np.minimum, FOREVER), steps)

    def remembered(self) -> tuple[Times, Times]:
        """What can still be the smallest of its device: per step of the span the smallest, where all after it are greater.
        Rows that name the device and the step, and the smallest there."""
        starts = np.flatnonzero(np.append(True, (np.diff(self.codes) != 0) | (np.diff(self.latest) != 0))[: len(self.codes)])
        own = np.minimum.reduceat(self.own, starts) if len(starts) else self.own
        starts, own = starts[own < FOREVER], own[own < FOREVER]
        codes, latest = self.codes[starts], self.latest[starts]
        last = np.flatnonzero(np.append(np.diff(codes) != 0, True)[: len(codes)])  # of each device
        within = latest > np.repeat(latest[last], np.diff(last, prepend=-1)) - self.steps
        values, rank = np.unique(own, return_inverse=True)
        key = codes * len(values) + rank
        after = np.minimum.accumulate(key[::-1])[::-1]  # backwards codes fall, so here too each device begins anew
        chosen = within & np.append(key[:-1] < after[1:], True)[: len(key)]
        return starts[chosen], own[chosen]


def _teaches(rule: Rule, readings: Readings) -> Mask:
    """Which rows tell how far a clock is off: those whose own three times agree with when they were stored."""
    known = readings.alive & readings.known
    for times in (readings.happened, readings.sent, readings.received):
        known = known & (times >= FIRST) & (times <= LAST)
    apart = np.where(known, readings.received, 0) - np.where(known, readings.sent, 0)
    return known & _plausible(rule, readings, np.where(known, readings.happened, 0) + apart)


def _plausible(rule: Rule, readings: Readings, times: Times) -> Mask:
    there = (readings.happened >= FIRST) & (readings.happened <= LAST) & (times >= FIRST) & (times <= LAST)
    return np.asarray(there & (times <= readings.appended + rule.future) & (times >= readings.appended - rule.past))


def _remembered(devices: pa.Table, order: Times, shown: _Shown) -> pa.Table:
    chosen, smallest = shown.remembered()
    rows = devices.take(order[chosen])
    rows = rows.append_column(STEP, pa.array(shown.latest[chosen])).append_column(DELAY, pa.array(smallest))
    return sorted_by_hash(rows.add_column(0, HASH, pa.array(_hashes(rows.select(devices.column_names)))).combine_chunks())


def _plain(devices: pa.Table) -> pa.Table:
    return table_of({name: plain(devices[name]) for name in devices.column_names})


def _hashes(devices: pa.Table) -> npt.NDArray[np.uint64]:
    return hash64(devices.columns, devices.num_rows)


def _codes(devices: pa.Table) -> Times:
    """A number for each device, from 0."""
    return key_numbers(devices.append_column(HASH, pa.array(_hashes(devices))), devices.column_names)
