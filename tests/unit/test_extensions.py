"""One of each kind, added from outside the package: a step that looks at rows, a step with state, a sink, somebody to ask, a log,
queues. What they touch is what CONTRIBUTING says, and nothing else."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import Flow, Producer, TopicSpec, agg
from penstock.core.columns import HASH, POSITION, TIME, WATERMARK
from penstock.core.hashing import hash64
from penstock.errors import AlreadyThere, BadFlow, BadInput
from penstock.flow.definition import Known
from penstock.flow.explain import as_text
from penstock.flow.place import At
from penstock.kernels import registry
from penstock.kernels.columns import sorted_by_hash, travelling
from penstock.kernels.port import Changes, Prepared, State, Stepped
from penstock.log import open as logs
from penstock.log.memory import MemoryLog
from penstock.log.open import open_log
from penstock.plan import Meaning, Node, SinkDefinition, Step
from penstock.queue import open as queue_addresses
from penstock.queue.memory import MemoryQueues
from penstock.queue.open import open_queues
from penstock.sinks.port import Delivery, Sink, SinkContext
from penstock.testing.driver import FlowTest
from toys.lookups import Multiples
from toys.rows import ShoutDefinition

Start = Callable[..., FlowTest]


# a step with state: a node that names its family, and the kernel of the family


@dataclass(frozen=True)
class First(Node):
    """The first row of each key that comes in, whatever its time."""

    family: ClassVar[str] = "toy-first"

    by: str

    def always(self, given: Sequence[str]) -> set[str]:
        return {self.by}

    def keyed_by(self) -> list[tuple[str, ...]]:
        return [(self.by,)]

    def meaning(self) -> Meaning:
        return {"is": "toy-first/1", "by": self.by}


@dataclass(frozen=True)
class FirstDefinition:
    column: str

    kind: ClassVar[str] = "first"
    judges: ClassVar[bool] = False
    takes_updates: ClassVar[bool] = False

    @property
    def by(self) -> tuple[str, ...]:
        return (self.column,)

    def resolve(self, at: At, inputs: Sequence[Known]) -> Known:
        (above,) = inputs
        step = Step(at.name, (above.name,), First(self.column), above.schema, at.origin)
        return Known((step,), at.name, self.by, self.by, (above,))


class FirstKernel:
    needs_position, gives_position = True, True

    def __init__(self, node: First, output: pa.Schema) -> None:
        self._by, self._schema = node.by, travelling(output)

    def prepare(self, port: int, rows: pa.Table) -> Prepared:
        hashes = pa.array(hash64([rows[self._by]], rows.num_rows))
        return Prepared(rows.append_column(HASH, hashes), None, Counter({"passed": rows.num_rows}))

    def step(self, state: State, rows: Sequence[pa.Table | None], frontiers: Sequence[int]) -> Stepped:
        seen = {key for run in state.runs("seen", 0) for key in run[self._by].to_pylist()}
        new, changes = rows[0], Changes()
        if new is None:
            return Stepped(self._schema.empty_table(), changes)
        new = new.sort_by([(POSITION, "ascending")])
        firsts = dict[Any, int]()
        for i, key in enumerate(new[self._by].to_pylist()):
            if key not in seen:
                firsts.setdefault(key, i)
        out = new.take(pa.array(sorted(firsts.values()), pa.int64()))
        if out.num_rows:
            changes.add["seen", 0] = sorted_by_hash(out.select([self._by, HASH]))
        never = pa.array(np.full(out.num_rows, -(2**62)))
        columns = {name: never if name == WATERMARK else out[name] for name in self._schema.names}
        return Stepped(pa.table(columns, schema=self._schema), changes)

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table:
        return sorted_by_hash(pa.concat_tables(runs))

    def frontier(self, frontiers: Sequence[int]) -> int:
        return frontiers[0]

    def open_rows(self, state: State) -> pa.Table | None:
        return None


registry.register("toy-first", lambda node, inputs, output: FirstKernel(node, output))  # as a module is loaded


def shop() -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", "id long, user string, at timestamp", time="at", lateness="10 seconds")
    loud = orders.step(ShoutDefinition("user"), name="loud")
    loud.view("loud")
    loud.step(FirstDefinition("user"), name="firsts").view("firsts")
    return flow


def order(number: int, user: str) -> dict[str, Any]:
    return {"id": number, "user": user, "at": f"2024-01-15T10:00:{number:02d}Z"}


@pytest.mark.parametrize("cut", [1, 2, 10])
def test_steps_from_outside_run_in_any_cut_keep_state_and_are_explained(cut: int, flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", *(order(n, "ann" if n % 2 else "bob") for n in range(6)))
    while t.epoch(cut):
        pass
    t.restart()
    t.send("orders", order(7, "ann"), order(8, "cid"))
    t.catch_up()
    assert [row["user"] for row in t.rows("loud")] == ["BOB", "ANN"] * 3 + ["ANN", "CID"]
    assert sorted((row["id"], row["user"]) for row in t.rows("firsts")) == [(0, "BOB"), (1, "ANN"), (8, "CID")]
    assert "makes    user loud" in as_text(t.plan)
    assert t.fates("loud") == {"in": 8, "passed": 8}


# a sink


@dataclass(frozen=True)
class Lines(SinkDefinition):
    """Rows as lines of a text file, which is written anew for every epoch it does not have yet. A toy: it fences nobody."""

    path: Path

    kind: ClassVar[str] = "lines"
    takes_updates: ClassVar[bool] = False

    @property
    def target(self) -> str:
        return self.path.stem

    def prepare(self, rows: pa.Table) -> pa.Table:
        """Runs in tasks."""
        line = pc.binary_join_element_wise(rows["user"].cast(pa.string()), rows["id"].cast(pa.string()), ":")
        return rows.append_column("line", line)

    def build(self, context: SinkContext) -> Sink:
        return LinesSink(self.path, context)


class LinesSink:
    def __init__(self, path: Path, context: SinkContext) -> None:
        self._path, self._context = path, context

    def open(self, incarnation: str, generation: int) -> int:
        return int(self._path.read_text().split("\n")[0]) if self._path.exists() else -1

    def deliver(self, delivery: Delivery) -> None:
        before = self._path.read_text().split("\n")[1:] if self._path.exists() else []
        new = []
        for file in delivery.files:
            with pa.ipc.open_file(self._context.storage.read(file)) as reader:
                rows = reader.read_all().sort_by([(TIME, "ascending")])
                new += rows["line"].to_pylist()
        self._path.write_text("\n".join([str(delivery.marker.epoch), *before, *new]))

    def close(self) -> None:
        pass


def test_a_sink_from_outside_takes_what_was_prepared_in_tasks(tmp_path: Path, flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", "id long, user string, at timestamp", time="at", lateness="10 seconds")
    (tmp_path / "again").mkdir()
    orders.sink(Lines(tmp_path / "orders.txt")).sink(Lines(tmp_path / "again" / "orders.txt"), name="twin")
    t = flow_test(flow)
    t.send("orders", order(1, "ann"), order(2, "bob"))
    t.catch_up()
    t.send("orders", order(3, "cid"))
    t.catch_up()
    assert (tmp_path / "orders.txt").read_text().split("\n")[1:] == ["ann:1", "bob:2", "cid:3"]
    assert (tmp_path / "again" / "orders.txt").exists()
    assert {out.id for out in t.plan.outputs} == {"lines.orders", "lines.twin"}
    assert "lines orders" in as_text(t.plan)


def test_two_sinks_of_one_target_need_a_name_and_rows_that_change_a_sink_that_takes_them(tmp_path: Path) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", "id long, user string, at timestamp", time="at", lateness="10 seconds")
    orders.sink(Lines(tmp_path / "orders.txt"))
    with pytest.raises(BadFlow, match="lines 'orders' is written twice"):
        orders.sink(Lines(tmp_path / "b" / "orders.txt"))
    with pytest.raises(BadFlow, match="it is no sink"):
        orders.sink("orders.txt")  # type: ignore[arg-type]
    orders.group_by("user").agg(n=agg.count(), name="counts").sink(Lines(tmp_path / "counts.txt"))
    with pytest.raises(BadFlow, match=r"cannot write counts to lines 'counts': its rows change(?s:.*)made updating by"):
        flow.test()


# somebody to look rows up at


def test_somebody_from_outside_is_asked_and_shown(flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", "id long, user string, at timestamp", time="at", lateness="10 seconds")
    orders.lookup(Multiples(7), on="id", schema="found long", name="multiples").view("found")
    t = flow_test(flow)
    t.send("orders", *(order(n, "ann") for n in range(3)))
    t.catch_up()
    assert [row["found"] for row in t.rows("found")] == [None, 7, 14]
    assert "asks     multiples by 7" in as_text(t.plan)


# a log, and queues


class ToyOpener:
    def __init__(self) -> None:
        self.log = MemoryLog()

    def check(self, url: str) -> None:
        if url != "toy://here":
            raise BadInput(f"{url} leads nowhere", hint="write toy://here")

    def open(self, url: str, patience: float | None) -> MemoryLog:
        return self.log


OPENER, QUEUES = ToyOpener(), MemoryQueues()
logs.SCHEMES.add("toy", lambda: OPENER)
queue_addresses.SCHEMES.add("toy", lambda: lambda url: QUEUES)


def test_a_log_and_queues_are_found_by_their_scheme() -> None:
    log = open_log(url="toy://here")
    with Producer(log.create(TopicSpec("t"))) as producer:
        producer.send(b"x")
    assert open_log(url="toy://here").topic("t").ends()[0].next == 1
    assert log.groups().describe() == []
    assert open_queues("toy:").names() == []
    with pytest.raises(BadInput, match="leads nowhere"):
        open_log(url="toy://there")
    with pytest.raises(BadInput, match="not an address of a log"):
        open_log(url="other://here")
    with pytest.raises(AlreadyThere, match="'toy' of a log is taken"):
        logs.SCHEMES.add("toy", ToyOpener)


def test_a_package_names_its_log_and_queues_in_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere.py").write_text(
        "from penstock.log.memory import MemoryLog\n"
        "from penstock.queue.memory import MemoryQueues\n"
        "class Opener:\n"
        "    log = MemoryLog()\n"
        "    def check(self, url): pass\n"
        "    def open(self, url, patience): return self.log\n"
        "opener, queues = Opener(), lambda url: MemoryQueues()\n"
    )
    information = tmp_path / "elsewhere-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    points = "[penstock.logs]\nelse = elsewhere:opener\n[penstock.queues]\nelse = elsewhere:queues\n"
    (information / "entry_points.txt").write_text(points)
    with pytest.raises(BadInput):
        open_log(url="else://there")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(open_log(url="else://there"), MemoryLog)
    assert isinstance(open_queues("else:"), MemoryQueues)
