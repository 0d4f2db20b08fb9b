"""All measurements, one script after the other, each in its own process; the tables go into docs/benchmarks.md."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = (
    *("log", "log_places", "queues", "kafka", "windows", "kinds", "joins", "tables", "views", "lookup"),
    *("epochs", "real_time", "idle", "state", "start", "cluster", "sizes", "cdc", "sinks"),
)


def main() -> None:
    document = HERE.parent / "docs" / "benchmarks.md"
    given = sys.argv[1:]
    into = [] if "--quick" in given else ["--markdown", str(document)]  # a quick run says nothing about speed
    for script in SCRIPTS:
        print(f"\n{script}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, HERE / f"{script}.py", *given, *into], check=True)


if __name__ == "__main__":
    main()
