"""Flows on a real standalone cluster: a master and two workers as processes of their own, whose own Python has no library.

Everything that can be killed is killed in the middle of a batch; after each, every row is where it belongs, once (G8, G9, G10)."""

import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from faults.engine_shop import check, drained, fill, last_decision, make_input
from penstock.engine.run.runtime import ONE_TASK_ROWS
from penstock.engine.spark.pack import pack_environment
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.spark_cluster import SparkCluster, Worker
from waiting import until

TESTS = Path(__file__).parents[1]
FLOWS = Path(__file__).with_name("flows")
UNLOCKED = Path(__file__).with_name("unlocked.py")
EVERYWHERE = TESTS.parent / "examples" / "shop_everywhere"
PENSTOCK = ("-c", "from penstock.cli.main import main; main()")
PATIENCE = 90.0
Run = subprocess.Popen[str]

pytestmark = pytest.mark.timeout(500)


@pytest.fixture
def cluster(spark_cluster: SparkCluster) -> Iterator[SparkCluster]:
    yield spark_cluster
    spark_cluster.mend()


@pytest.fixture(scope="session")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("pack") / "env.tar.gz"
    pack_environment(path)
    yield path
    path.unlink()


def started(cluster: SparkCluster, files: Sequence[Path], *more: str, program: Sequence[str] = PENSTOCK, **env: str) -> Run:
    """`penstock run --drain` of the flows on the cluster, in a process group of its own, every epoch across tasks."""
    command = [sys.executable, *program, "run", *map(str, files), "--drain", "--master", cluster.url, "--max-rows", "100", *more]
    for name, value in {ONE_TASK_ROWS: "0", **cluster.settings()}.items():
        if f"{name}=" not in " ".join(more):
            command += ["--conf", f"{name}={value}"]
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    told = {**os.environ, "PYTHONPATH": path, **env}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=told, text=True, start_new_session=True, stderr=pipe, stdout=pipe)


class Shop:
    """The shop in a home that driver and workers share, and its runs on the cluster."""

    def __init__(self, place: Path, cluster: SparkCluster, stack: ExitStack, rows: int = 600) -> None:
        self.place, self.cluster, self._stack = place, cluster, stack
        self.home, self.given = place / "home", make_input(rows)
        fill(self.home, self.given)

    def run(self, *more: str, fail: str = "", unlocked: bool = False) -> Run:
        """unlocked: as on a disk whose locks nobody else sees."""
        files, program = [FLOWS / "held_shop.py", FLOWS / "report.py"], [str(UNLOCKED)] if unlocked else PENSTOCK
        env = {"PENSTOCK_HOME": str(self.home), "PENSTOCK_FAIL": fail, "HOLD": str(self.place)}
        process = started(self.cluster, files, *more, program=program, **env)
        self._stack.callback(killed, process)
        return process

    def ends(self, *more: str, fail: str = "", unlocked: bool = False) -> tuple[int, str]:
        """The exit code of a run, and what it said."""
        process = self.run(*more, fail=fail, unlocked=unlocked)
        _, said = process.communicate(timeout=PATIENCE * 2)
        return process.returncode, said

    def decided(self) -> int:
        return len(list((self.home / "flows" / "shop" / "epochs").glob("0*")))

    def hold(self) -> None:
        """From now on a task stands still in the middle of its batch."""
        (self.place / "hold").touch()

    def release(self) -> None:
        (self.place / "hold").unlink()

    def standing(self, run: Run) -> psutil.Process:
        """The Python process that stands in the middle of a batch now, and stood there no time before."""
        found: list[int] = []

        def here() -> bool:
            found[:] = [int(path.name[3:]) for path in self.place.glob("at-*")]
            return bool(found) or run.poll() is not None

        assert until(here, PATIENCE)
        assert found, run.communicate()[1]
        for path in self.place.glob("at-*"):
            path.unlink()
        return psutil.Process(found[0])


def killed(process: Run) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.fixture
def shop(tmp_path: Path, cluster: SparkCluster, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Its log is on Kafka, in a name space of its own; its state on a disk that all share."""
    monkeypatch.setenv("PENSTOCK_LOG", f"{kafka_broker.url}?prefix={tmp_path.name[-30:]}.")
    with ExitStack() as stack:
        yield Shop(tmp_path, cluster, stack)


def executor_of(python: psutil.Process) -> psutil.Process:
    return next(p for p in python.parents() if p.name() == "java")


def worker_of(cluster: SparkCluster, process: psutil.Process) -> Worker:
    return next(w for w in cluster.workers if w.process.pid in [p.pid for p in process.parents()])


def test_python_executor_worker_and_driver_are_killed_in_the_middle_and_every_row_is_there_once(shop: Shop) -> None:
    """And while the first driver runs, a second one is told who holds the flow."""
    shop.hold()
    run = shop.run(fail="shop/after_decide@5")
    python = shop.standing(run)
    code, said = shop.ends()
    assert code == 1
    assert f"flow shop is already running\n  held by process {run.pid} on " in said
    python.kill()
    executor_of(shop.standing(run)).kill()
    worker_of(shop.cluster, shop.standing(run)).process.kill()
    shop.standing(run)
    shop.release()
    assert run.wait(PATIENCE) == -signal.SIGKILL, run.communicate()[1]
    assert last_decision(shop.home, "shop").epoch == 4
    code, said = shop.ends()
    assert code == 0, said
    check(shop.home, shop.given)


@pytest.mark.long
def test_the_shop_of_the_demo_gives_on_kafka_and_a_cluster_what_it_gives_in_one_process(
    tmp_path: Path,
    cluster: SparkCluster,
    kafka_broker: KafkaBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every row of every view and every line of the books (examples/shop_everywhere)."""
    example = runpy.run_path(str(EVERYWHERE / "test_everywhere.py"))
    files = [EVERYWHERE / "shop.py", EVERYWHERE / "report.py"]
    monkeypatch.chdir(EVERYWHERE)
    found = []
    for place, url in (("embedded", ""), ("kafka", f"{kafka_broker.url}?prefix=cluster.")):
        monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / place))
        monkeypatch.setenv("PENSTOCK_LOG", url)
        example["produced"]()
        if url:
            run = started(cluster, files)
            _, said = run.communicate(timeout=PATIENCE)
            assert run.returncode == 0, said
        else:
            drained(tmp_path / place, *(runpy.run_path(str(file))["flow"] for file in files))
        found.append(example["results"](capsys))
    example["check"](found[0])
    assert found[0] == found[1]


RUNS_A_TASK = """
import sys
from penstock.engine.spark.session import start_context
context = start_context("maps", sys.argv[1], dict(part.split("=", 1) for part in sys.argv[2:]))
print(context.parallelize(range(100), 4).repartition(2).sum(), flush=True)
sys.stdin.read()
"""


@pytest.mark.long
def test_no_jvm_of_a_cluster_leaves_anything_in_the_temporary_directory_that_all_share(cluster: SparkCluster) -> None:
    """Native libraries that a JVM has unpacked are mapped into it; one that is killed leaves them where they are."""
    given = [f"{name}={value}" for name, value in cluster.settings().items()] + [f"spark.pyspark.python={sys.executable}"]
    command = [sys.executable, "-c", RUNS_A_TASK, cluster.url, *given]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdin
        assert driver.stdout
        assert driver.stdout.readline() == "4950\n"
        family = psutil.Process(driver.pid).children() + cluster.jvms()
        mapped = {m.path for jvm in family if "java" in jvm.name() for m in jvm.memory_maps()}
        driver.stdin.close()
    shared = Path(tempfile.gettempdir())
    ours = [path for path in mapped if Path(path).is_relative_to(shared) and not Path(path).is_relative_to(cluster.place)]
    assert [path for path in mapped if path.startswith(str(cluster.place)) and "commons-crypto" in path]
    assert all(Path(path).relative_to(shared).parts[0].startswith("penstock-") for path in ours), ours


@pytest.mark.long
def test_executors_that_lack_a_library_are_told_of_in_one_paragraph_before_anything_is_run(shop: Shop) -> None:
    code, said = shop.ends("--conf", f"spark.pyspark.python={shop.cluster.python}")
    assert code == 1
    *_, told = said.partition("error: ")
    assert told.startswith("executors cannot run this flow\n")
    assert "ModuleNotFoundError: No module named 'polars'" in told
    assert "hint: take the libraries along: penstock pack --archive" in told
    assert "Traceback" not in told
    assert "org.apache" not in told
    assert shop.decided() == 0


@pytest.mark.long
def test_executors_that_lack_a_secret_of_the_log_are_told_of_and_it_is_sent_nowhere(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret is named, and everybody looks it up where they are: here in a variable that the workers do not have."""
    monkeypatch.setenv("CANARY", "canary-4711")
    code, said = shop.ends("--log", os.environ["PENSTOCK_LOG"] + "&key_password=env:CANARY")
    assert code == 1
    assert "executors cannot run this flow" in said
    assert "the secret for key_password is not there: the variable CANARY is not set" in said
    assert "canary-4711" not in said
    written = [path for path in shop.cluster.place.rglob("*") if path.is_file() and path.suffix != ".jar"]
    assert not [path for path in written if b"canary-4711" in path.read_bytes()]


@pytest.mark.long
def test_workers_that_have_nothing_but_java_run_flows_from_a_pack(shop: Shop, pack: Path) -> None:
    code, said = shop.ends("--pack", str(pack), "--conf", "spark.executor.extraJavaOptions=-XX:+UseSerialGC")
    assert code == 0, said
    assert "executors get env.tar.gz: Python, the libraries and penstock" in said
    check(shop.home, shop.given)


@pytest.mark.long
def test_a_whole_machine_that_loses_its_power_costs_no_row(shop: Shop) -> None:
    run = shop.run()
    assert until(lambda: shop.decided() >= 2 or run.poll() is not None, PATIENCE)
    shop.cluster.workers[0].kill()
    _, said = run.communicate(timeout=PATIENCE * 2)
    assert run.returncode == 0, said
    check(shop.home, shop.given)


@pytest.mark.long
def test_a_machine_that_stands_still_and_comes_back_harms_nothing(shop: Shop) -> None:
    """Its executor is given up, its task is run elsewhere; awake again it finishes an attempt that nobody waits for."""
    quickly = {"spark.network.timeout": "12s", "spark.executor.heartbeatInterval": "2s", "spark.network.timeoutInterval": "2s"}
    shop.hold()
    run = shop.run(*(part for pair in quickly.items() for part in ("--conf", "=".join(pair))))
    python = shop.standing(run)
    frozen = worker_of(shop.cluster, python)
    frozen.freeze()
    assert until(lambda: any(shop.place.glob("at-*")) or run.poll() is not None, PATIENCE), "no other attempt"
    shop.release()
    assert until(lambda: shop.decided() >= 1 or run.poll() is not None, PATIENCE)
    frozen.thaw()
    _, said = run.communicate(timeout=PATIENCE * 2)
    assert run.returncode == 0, said
    check(shop.home, shop.given)


HALF = ("--conf", "spark.cores.max=1")  # of the cluster, so that there is room for two drivers
STEPS = ("after_open", "after_run", "before_decide", "after_decide", "after_sweep")
DELIVERED = ("after_deliver:view.sales", "after_deliver:topic.sales_topic", "view.marker", "topic.appended")


@pytest.mark.long
@pytest.mark.parametrize("point", [*STEPS, *DELIVERED])
def test_a_driver_that_is_killed_at_any_step_is_followed_by_one_that_goes_on(point: str, shop: Shop) -> None:
    assert shop.ends(fail=f"shop/{point}@2")[0] == -signal.SIGKILL
    code, said = shop.ends()
    assert code == 0, said
    check(shop.home, shop.given)


@pytest.mark.long
def test_of_two_drivers_on_a_disk_without_locks_one_decides_each_epoch_and_the_other_stops(shop: Shop) -> None:
    """As on a file system whose locks other machines do not see: the exclusive create of the decision is what counts (G10)."""
    shop.hold()
    first = shop.run(*HALF, unlocked=True)
    shop.standing(first)
    second = shop.run(*HALF, unlocked=True)
    shop.standing(second)
    shop.release()
    said = [run.communicate(timeout=PATIENCE * 2)[1] for run in (first, second)]
    codes = [first.returncode, second.returncode]
    assert sorted(codes) == [0, 5], said
    assert "flow shop was replaced by process" in said[codes.index(5)], said
    code, text = shop.ends()
    assert code == 0, text
    check(shop.home, shop.given)


@pytest.mark.long
def test_a_driver_that_was_frozen_and_replaced_stops_when_it_wakes_and_harms_nothing(shop: Shop) -> None:
    """Its lock is defeated, as if it had been on another machine."""
    shop.hold()
    sleeper = shop.run(*HALF, unlocked=True)
    shop.standing(sleeper)
    os.killpg(sleeper.pid, signal.SIGSTOP)
    shop.release()
    code, said = shop.ends(*HALF, unlocked=True)
    assert code == 0, said
    decided = last_decision(shop.home, "shop")
    os.killpg(sleeper.pid, signal.SIGCONT)
    _, said = sleeper.communicate(timeout=PATIENCE * 2)
    assert sleeper.returncode == 5
    assert "flow shop was replaced by process" in said, said
    assert last_decision(shop.home, "shop") == decided
    check(shop.home, shop.given)
