"""Starting: import and --help, the first row of a view after `penstock run`, the next decision after a kill."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from events import LATENESS, ddl, events, fill
from measuring import Meter, Peak, median
from report import Table, gibibytes, options, parsed, percent, publish

from penstock.log.file.log import FileLog
from penstock.storage.local import LocalStorage

_PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
_FLOW = """from penstock import Flow, Tumbling, agg

flow = Flow("start")
events = flow.stream("events", "{schema}", time="ts", lateness="{lateness}")
events.window(Tumbling("1 second"), by="k").agg(n=agg.count(), total=agg.sum("v")).view("out")
"""
_PATIENCE = 300.0  # seconds: the archive is made at low priority, beside whatever else runs


def wait_until(condition: Callable[[], bool], what: str) -> float:
    """Seconds until it holds."""
    started = time.perf_counter()
    while not condition():
        if time.perf_counter() - started > _PATIENCE:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.005)
    return time.perf_counter() - started


def measure_imports(repeat: int) -> Table:
    out = Table("Without Spark", "what", "median", "foreign")
    for what, command in (
        ("import penstock", [sys.executable, "-c", "import penstock"]),
        ("penstock --help", [*_PENSTOCK, "--help"]),
    ):
        runs = []
        for _ in range(repeat * 3):
            with Meter() as meter:
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            runs.append(meter)
        out.add(what, f"{median(m.seconds for m in runs):.2f} s", percent(median(m.foreign for m in runs)))
    return out


class Place:
    """A directory with a flow file and a home whose topic holds a few rows."""

    def __init__(self, directory: Path, rows: int) -> None:
        self.directory = directory
        directory.mkdir()
        table = events(rows, 100)
        fill(FileLog(LocalStorage(str(directory / ".penstock" / "log"))), "events", table, frame=1_000)
        (directory / "flow.py").write_text(_FLOW.format(schema=ddl(table), lateness=LATENESS))

    def run(self, environment: Mapping[str, str], *how: str) -> "subprocess.Popen[bytes]":
        command = [*_PENSTOCK, "run", "flow.py", *how]
        with open(self.directory / "said", "ab") as said:
            env = {**os.environ, "PENSTOCK_HOME": str(self.directory / ".penstock"), **environment}
            return subprocess.Popen(command, cwd=self.directory, env=env, stdout=said, stderr=said, start_new_session=True)

    def has_rows(self) -> bool:
        path = self.directory / ".penstock" / "views" / "out.db"
        if not path.exists():
            return False
        try:
            with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as connection:
                return connection.execute("SELECT 1 FROM current LIMIT 1").fetchone() is not None
        except sqlite3.OperationalError:
            return False

    def decided(self) -> int:
        """The number of the newest decision."""
        path = self.directory / ".penstock" / "flows" / "start" / "epochs"
        return max((int(name) for name in os.listdir(path) if name.isdigit()), default=-1) if path.exists() else -1


def first_row(place: Place, environment: Mapping[str, str]) -> tuple[float, float, float, int]:
    """Seconds from process start to the first row of its view; processor seconds, foreign share and memory until its end."""
    with Peak() as peak, Meter() as meter:
        process = place.run(environment, "--catch-up")
        seconds = wait_until(lambda: place.has_rows() or process.poll() is not None, "the first row")
        if not place.has_rows() or process.wait(_PATIENCE):
            raise SystemExit((place.directory / "said").read_text())
    return seconds, meter.cpu, meter.foreign, peak.bytes


def measure_starts(directory: Path, rows: int, repeat: int) -> Table:
    out = Table(
        "`penstock run --catch-up`: process start → first row of the view", "start", "seconds", "CPU", "peak memory", "foreign"
    )
    cache = directory / "cache"
    fresh = {"XDG_CACHE_HOME": str(cache)}

    def add(what: str, runs: list[tuple[float, float, float, int]]) -> None:
        seconds, cpu, foreign, peak = (median(values) for values in zip(*runs, strict=True))
        out.add(what, f"{seconds:.1f}", f"{cpu:.1f} s", gibibytes(peak), percent(foreign))

    add("first ever: no class-data archive", [first_row(Place(directory / "cold", rows), fresh)])
    waited = wait_until(lambda: any((cache / "penstock").glob("*.jsa")), "the class-data archive")
    print(f"the archive was there {waited:.0f} s later", file=sys.stderr)
    add("every later start", [first_row(Place(directory / f"warm{i}", rows), fresh) for i in range(repeat)])
    plain = fresh | {"PENSTOCK_LAUNCH": "plain"}
    add("PENSTOCK_LAUNCH=plain", [first_row(Place(directory / f"plain{i}", rows), plain) for i in range(min(repeat, 2))])
    return out


def measure_recovery(directory: Path, rows: int, repeat: int) -> Table:
    """Killed between two epochs of many; the next start must decide the next one."""
    out = Table("Recovery: SIGKILL of all processes while reading, start → next decision", "seconds", "foreign")
    fresh = {"XDG_CACHE_HOME": str(directory / "cache")}
    runs = [_recovery(Place(directory / f"kill{number}", rows * 10), fresh) for number in range(repeat)]
    out.add(f"{median(m.seconds for m in runs):.1f}", percent(median(m.foreign for m in runs)))
    return out


def _recovery(place: Place, environment: Mapping[str, str]) -> Meter:
    process = place.run(environment, "--max-rows", "1000")
    wait_until(lambda: place.decided() >= 5, "the fifth epoch")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = place.decided()
    with Meter() as meter:
        process = place.run(environment, "--max-rows", "1000")
        wait_until(lambda: place.decided() > before, "the next decision")
    process.send_signal(signal.SIGTERM)
    process.wait(_PATIENCE)
    return meter


def main() -> None:
    given = parsed(options(__doc__, 20_000, 15_000))
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        tables = [
            measure_imports(given.repeat),
            measure_starts(directory, given.rows, given.repeat),
            measure_recovery(directory, given.rows, given.repeat),
        ]
    publish("start", tables, given.markdown)


if __name__ == "__main__":
    main()
