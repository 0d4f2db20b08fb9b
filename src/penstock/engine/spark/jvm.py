"""Whether the JVM of this process still runs, and how it ended."""

import signal
import subprocess
import sys


def ended(patience: float = 0.0) -> int | None:
    """The exit code of this process's JVM, if it had one and that has ended, or does so in so many seconds."""
    pyspark = sys.modules.get("pyspark")
    context = getattr(pyspark, "SparkContext", None)  # none yet while pyspark is being imported
    process = getattr(context._gateway, "proc", None) if context is not None else None
    try:
        return None if process is None else int(process.wait(patience))
    except subprocess.TimeoutExpired:
        return None


def how_it_ended(code: int) -> str:
    """As in: the JVM ended with code 1, the JVM was killed by SIGKILL."""
    if code >= 0:
        return f"ended with code {code}"
    return f"was killed by {signal.Signals(-code).name if -code in set(signal.Signals) else f'signal {-code}'}"
