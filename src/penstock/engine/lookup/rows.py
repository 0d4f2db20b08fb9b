"""Lookups, inside a task: rows with one key ask once, answers are cached, and a circuit breaker pauses calls to a failing service.

Answers are kept by process: tasks of one worker share them. What a lookup gives is written to files before anything is made of it
(the steps behind it lie in the next segment), so a task that runs again finds the answers that the first one got."""

import random
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import array_of, table_of
from penstock.engine.execute.failing import Failure, cause_of, without
from penstock.engine.lookup.ask import Asker, TookTooLong
from penstock.errors import BadFlow, Unanswered
from penstock.kernels.columns import column, plain
from penstock.kernels.port import Fates
from penstock.log.intake.conversion import Misfit, converter, misfit_text
from penstock.plan import Lookup, Step

Key = tuple[Any, ...]


class Unfit(str):
    """Why what was answered for a key cannot be used."""


Answer = tuple[Any, ...] | Unfit | None  # values in the order of the columns of the answers

_CLIENTS = 32  # lookups whose answers a process keeps
_LONGEST_PAUSE = 30.0
_FAILED = object()


def look_up(step: Step, rows: pa.Table, system: Sequence[str]) -> tuple[pa.Table, Fates, list[Failure]]:
    """The rows with the columns of their answers, what became of them, and those whose answer cannot be used, which are left out;
    system: columns that stay with their rows."""
    lookup = step.node
    assert isinstance(lookup, Lookup)
    firsts, asks, which = _distinct([plain(column(rows, name)) for name in lookup.on])
    wanted = rows.select(list(lookup.on)).take(firsts).to_pylist()
    client = client_of(step)
    answers, fates = client.answers([tuple(key.values()) for key in wanted])
    known = np.array([isinstance(answer, tuple) for answer in answers], np.bool_)
    met = np.zeros(rows.num_rows, np.bool_)
    met[asks] = known[which]
    at = np.full(rows.num_rows, -1, np.int64)
    at[asks] = which
    indices = array_of(at, absent=~met)
    made = {n: _values(answers, i, t).take(indices) for i, (n, t) in enumerate(_types(lookup)) if n in step.schema}
    columns = {n: made[n] if n in made else rows.column(n) for n in step.schema.names}
    out = table_of(columns | {n: rows.column(n) for n in system if n in rows.column_names})
    failures = _failures(client, answers, at) if step.on_error == "dead" else []
    answered = int(np.count_nonzero(met))
    fates.update({"in": rows.num_rows, "answered": answered, "unmatched": rows.num_rows - answered - len(failures)})
    if lookup.how == "inner":
        return out.filter(pa.array(met)), fates, failures
    return (without(out, failures) if failures else out), fates, failures


def _failures(client: "LookupClient", answers: Sequence[Answer], asked: npt.NDArray[np.int64]) -> list[Failure]:
    """The rows whose answer cannot be used; asked: for each row the number of its key, -1 where it has none."""
    unfit = np.array([isinstance(answer, Unfit) for answer in answers] + [False], np.bool_)
    rows = np.flatnonzero(unfit[asked]).tolist()
    return [Failure(row, f"lookup {client.asker.name}", str(answers[asked[row]])) for row in rows]


def _types(lookup: Lookup) -> list[tuple[str, pa.DataType]]:
    return [(f.name, f.type) for f in lookup.answers]


def _values(answers: Sequence[Answer], index: int, kind: pa.DataType) -> pa.Array:
    return pa.array([answer[index] if isinstance(answer, tuple) else None for answer in answers], kind)


def _distinct(keys: Sequence[pa.Array]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The first row of each key, the rows that have a key without a null, and for each of these which key it is."""
    n = len(keys[0])
    codes, there = np.zeros(n, np.int64), np.ones(n, np.bool_)
    for values in keys:
        coded = values.dictionary_encode()
        there &= coded.indices.is_valid().to_numpy(zero_copy_only=False)
        number = coded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        _, codes = np.unique(codes * max(len(coded.dictionary), 1) + number, return_inverse=True)
    asks = np.flatnonzero(there)
    _, first, which = np.unique(codes[asks], return_index=True, return_inverse=True)
    return asks[first], asks, which


@dataclass
class LookupClient:
    """One lookup in one process: its answers, and how whoever is asked has been lately."""

    step: Step
    now: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep
    kept: "OrderedDict[Key, tuple[float, Answer]]" = field(default_factory=OrderedDict)
    failed: int = 0  # calls in a row
    closed: float | None = None  # until then nobody is asked
    why: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        lookup = self.step.node
        assert isinstance(lookup, Lookup)
        self.lookup, self.how = lookup, lookup.asking
        self.convert = [(name, kind, converter(kind)) for name, kind in _types(lookup)]
        self.asker, self.where = Asker(lookup), f'step "{self.step.name}" ({self.step.origin})'

    def answers(self, keys: Sequence[Key]) -> tuple[list[Answer], Fates]:
        """An answer for each of these keys, which are all different; and how many were asked."""
        with self.lock:
            now, counts = self.now(), Counter({"keys": len(keys)})
            found = {key: kept[1] for key in keys if (kept := self.kept.get(key)) and kept[0] > now}
            for key in found:
                self.kept.move_to_end(key)
            counts["from cache"] = len(found)
            missing = [key for key in keys if key not in found]
            for start in range(0, len(missing), self.how.batch):
                batch = missing[start : start + self.how.batch]
                fresh = dict(zip(batch, self._asked(batch, counts), strict=True))
                self._keep(fresh)
                found |= fresh
            return [found[key] for key in keys], +counts

    def _keep(self, fresh: dict[Key, Answer]) -> None:
        if not self.how.cache:
            return
        until = self.now() + self.how.cache.total_seconds()
        for key, answer in fresh.items():
            self.kept[key] = until, answer
            self.kept.move_to_end(key)
        while len(self.kept) > self.how.cache_keys:
            self.kept.popitem(last=False)

    def _asked(self, keys: Sequence[Key], counts: Fates) -> list[Answer]:
        """What is answered, at once or after a while."""
        asked = [dict(zip(self.lookup.on, key, strict=True)) for key in keys]
        given, attempt = self._tried(asked, counts), 0
        while given is _FAILED:
            if attempt == self.how.retries:
                self._give_up()
            if self.closed is None:
                self.wait(self._pause(attempt))
            given, attempt = self._tried(asked, counts), attempt + 1
        self.failed, self.closed = 0, None
        return self._checked(given, asked)

    def _tried(self, asked: list[dict[str, Any]], counts: Fates) -> Any:
        self._leave_in_peace()
        counts["calls"] += 1
        try:
            return self.asker.ask(asked, self.how.timeout)
        except BadFlow as error:  # of the database: asking again would not help
            raise BadFlow(error.what, self.where, *error.detail, hint=error.hint) from error
        except Exception as error:
            counts["failed calls"] += 1
            self._note(error)
            return _FAILED

    def _pause(self, attempt: int) -> float:
        """Ever longer, and never quite the same for all who wait."""
        longest: float = min(self.how.pause.total_seconds() * 2**attempt, _LONGEST_PAUSE)
        return longest * random.uniform(0.5, 1.0)

    def _note(self, error: Exception) -> None:
        self.failed += 1
        self.why = str(error) if isinstance(error, TookTooLong) else f"{type(error).__name__}: {error}"
        if self.failed >= self.how.breaker:
            self.closed = self.now() + self.how.rest.total_seconds()

    def _leave_in_peace(self) -> None:
        """After many failures in a row nobody is asked for a while; then once, and at the next failure again not."""
        if self.closed is not None and self.now() < self.closed:
            self._give_up()

    def _give_up(self) -> NoReturn:
        rest = f", and nobody is asked for {self.closed - self.now():.0f} s now" if self.closed is not None else ""
        raise Unanswered(
            f"{self.asker.name} did not answer: {self.failed} call{'s' if self.failed > 1 else ''} failed in a row{rest}",
            self.where,
            f"the last time: {self.why}",
            hint="nothing of this epoch counts and nothing is lost; the next one asks again",
        )

    def _checked(self, given: Any, asked: Sequence[dict[str, Any]]) -> list[Answer]:
        if not isinstance(given, list | tuple) or len(given) != len(asked):
            got = f"{len(given)}" if isinstance(given, list | tuple) else f"a {type(given).__name__}"
            self._refuse(f"must give a list with an answer for each of {len(asked)} keys, and gave {got}")
        return [self._answer(answer, key) for answer, key in zip(given, asked, strict=True)]

    def _answer(self, given: Any, key: dict[str, Any]) -> Answer:
        if given is None:
            return None
        if isinstance(given, Exception):
            return self._unfit(f"answered {key} with {cause_of(given)}")
        if not isinstance(given, dict):
            return self._unfit(f"must answer with a dict or None, and answered {key} with a {type(given).__name__}")
        unknown = [name for name in given if name not in self.lookup.answers]
        if unknown:
            return self._unfit(f"answered {key} with {unknown[0]!r}, which is no column of schema=")
        values = []
        for name, kind, convert in self.convert:
            try:
                values.append(convert(given.get(name)))
            except Misfit as why:
                misfit = misfit_text(name, kind, given.get(name), str(why))
                return self._unfit(f"answered {key} with what does not fit: {misfit}")
        return tuple(values)

    def _unfit(self, what: str) -> Unfit:
        """An answer that cannot be used, for the rows of its key alone."""
        return self._refuse(what) if self.step.on_error == "stop" else Unfit(f"{self.asker.name} {what}")

    def _refuse(self, what: str) -> NoReturn:
        hint = f"its schema= is {self.lookup.answers.ddl()}"
        raise BadFlow(f"{self.asker.name} {what}", self.where, hint=hint)


_KEPT_CLIENTS: "OrderedDict[int, LookupClient]" = OrderedDict()
_DESK_LOCK = threading.Lock()


def client_of(step: Step) -> LookupClient:
    """The client of a lookup in this process; one that was long not asked for is closed."""
    with _DESK_LOCK:
        found = _KEPT_CLIENTS.get(id(step.node))
        if found is None or found.lookup is not step.node:
            found = _KEPT_CLIENTS[id(step.node)] = LookupClient(step)
        _KEPT_CLIENTS.move_to_end(id(step.node))
        while len(_KEPT_CLIENTS) > _CLIENTS:
            _KEPT_CLIENTS.popitem(last=False)
        return found


def forget() -> None:
    """Every answer that this process keeps, as if it had just begun."""
    with _DESK_LOCK:
        _KEPT_CLIENTS.clear()
