"""What tasks are given, and what they answer: one segment of one epoch, and its result."""

import pickle
import weakref
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from penstock.core.time import NEVER
from penstock.engine.execute.failing import Sample
from penstock.engine.execute.program import Program
from penstock.engine.source.read import Range
from penstock.engine.state.refs import RunRef, StagedRef
from penstock.kernels.port import Fates
from penstock.log.port import Log
from penstock.storage.port import Storage


class Carried(NamedTuple):
    """A file of rows for one reader of this segment."""

    reader: str  # "step:port", or "step" for rows that are its output (Spark SQL)
    file: str


@dataclass(frozen=True)
class Job:
    """One segment of one epoch, as tasks need to know it."""

    program: Program
    storage: Storage
    log: Log
    epoch: int
    segment: int
    buckets: int
    ranges: Sequence[Range]
    carried: Sequence[Carried]
    state: Sequence[RunRef]
    inputs: Mapping[str, tuple[int, ...]]  # keyed step -> frontier of each port, now
    before: Mapping[str, tuple[int, ...]]  # the same in the epoch before; () at the start
    clock: tuple[int, int] = (0, 0)  # when the epoch before and this one were opened
    answered: Mapping[str, int] = field(default_factory=dict)  # step -> the mark that its answers have left on its table
    refs: Mapping[tuple[str, int], list[RunRef]] = field(init=False)

    def __post_init__(self) -> None:
        refs: dict[tuple[str, int], list[RunRef]] = defaultdict(list)
        for ref in self.state:
            refs[ref.step, ref.bucket].append(ref)
        object.__setattr__(self, "refs", refs)

    def __reduce__(self) -> tuple[Any, ...]:
        """On its way to a task: the program as bytes, which a worker process unpacks once."""
        rest = [getattr(self, f.name) for f in fields(self) if f.init and f.name != "program"]
        return _unpacked_job, (_pack(self.program), *rest)

    def levels(self) -> range:
        return range(1, self.program.depth(self.segment) + 1)


@dataclass
class Result:
    """What a task tells the driver: names and counts, never rows."""

    staged: list[StagedRef] = field(default_factory=list)
    carried: list[tuple[str, str, int]] = field(default_factory=list)  # reader, file, rows: for Spark SQL and the next segment
    runs: list[RunRef] = field(default_factory=list)  # the whole state of the buckets that were touched
    touched: list[tuple[str, int]] = field(default_factory=list)  # (step, bucket)
    fates: dict[str, Fates] = field(default_factory=lambda: defaultdict(Counter))
    times: dict[tuple[str, int], int] = field(default_factory=dict)  # (source, partition) -> greatest plausible time
    marks: dict[tuple[str, int], int] = field(default_factory=dict)  # and greatest mark read, where headers cannot say
    accounts: dict[str, Fates] = field(default_factory=lambda: defaultdict(Counter))  # source -> what its offsets held
    answered: dict[str, int] = field(default_factory=dict)  # step -> the newest time that it has answered, + 1
    samples: dict[str, Sample] = field(default_factory=dict)  # step -> one of the rows on which it failed
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: "Result") -> None:
        self.staged += other.staged
        self.carried += other.carried
        self.runs += other.runs
        self.touched += other.touched
        for step, fates in other.fates.items():
            self.fates[step].update(fates)
        for source, account in other.accounts.items():
            self.accounts[source].update(account)
        for place, time in other.times.items():
            self.times[place] = max(time, self.times.get(place, NEVER))
        for place, mark in other.marks.items():
            self.marks[place] = max(mark, self.marks.get(place, NEVER))
        for step, time in other.answered.items():
            self.answered[step] = max(time, self.answered.get(step, NEVER))
        self.samples = other.samples | self.samples
        for what, seconds in other.seconds.items():
            self.seconds[what] += seconds


def travels_whole(module: ModuleType) -> None:
    """What tasks need of this module is sent along with the program: they cannot import it."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)


def _pack(program: Program) -> bytes:
    """The program as bytes, made once for each and kept as long as it lives."""
    known = _PACKED.get(id(program))
    if known is None:
        import cloudpickle

        known = _PACKED[id(program)] = bytes(cloudpickle.dumps(program))
        weakref.finalize(program, _PACKED.pop, id(program), None)
    return known


_PACKED: dict[int, bytes] = {}


def _unpacked_job(program: bytes, *rest: Any) -> Job:
    return Job(_unpack(program), *rest)


@lru_cache(maxsize=8)
def _unpack(data: bytes) -> Program:
    program = pickle.loads(data)  # noqa: S301  made by our own driver, carried by Spark
    assert isinstance(program, Program)
    return program
