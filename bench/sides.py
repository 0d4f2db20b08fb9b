"""Each side of a comparison runs in a process of its own, with a JVM of its own, one after the other.

Penstock tunes its JVM for rows that stay out of it, Structured Streaming wants Spark's defaults: in one JVM one of them would be
measured under the other's settings. What a side has to say comes back as JSON, rows as Parquet files in the shared directory.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_SIDE = "--side"
Side = Callable[[Path, dict[str, Any]], Any]


def apart(script: str, side: str, directory: Path, wish: Mapping[str, Any]) -> Any:
    """Runs `python SCRIPT --side SIDE` and returns what that side returned."""
    told = directory / f"{side}.json"
    subprocess.run([sys.executable, script, _SIDE, side, str(directory), json.dumps(wish)], check=True)
    return json.loads(told.read_text())


def is_side() -> bool:
    return sys.argv[1:2] == [_SIDE]


def run_side(sides: Mapping[str, Side]) -> None:
    """The other end of `apart`."""
    _, _, side, directory, wish = sys.argv
    result = sides[side](Path(directory), json.loads(wish))
    (Path(directory) / f"{side}.json").write_text(json.dumps(result))
