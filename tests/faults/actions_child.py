"""Runs a flow with a webhook in processes that are killed. Started as a program; it forks before it uses any thread.

Every line of its standard input is a home, the URL of a receiver and a list of settings of PENSTOCK_FAIL, as JSON. For each setting
a process, a group of its own, runs the flow to its end or to its kill. It answers with a line of how each ended.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.engine_shop import ORDERS, drained
from penstock import Flow, Tumbling, agg
from penstock.sinks import webhook

os.fsync = os.fdatasync = lambda fd: None  # a kill takes nothing from the kernel; power loss is another test's matter


def alerts(url: str) -> Flow:
    """Each order, and each window of orders, is an alert."""
    flow = Flow("alerts")
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds", idle="1 hour")
    hook = webhook(url, hosts=["127.0.0.1"], backoff="10 ms", timeout="2 seconds")
    orders.where("amount >= 50").sink(hook, name="large")
    totals = orders.window(Tumbling("1 minute"), by="user").agg(total=agg.sum("amount"), name="totals")
    totals.sink(webhook(url, hosts=["127.0.0.1"], backoff="10 ms", in_order_by="user"), name="totals")
    return flow


def ended(home: Path, url: str, fail: str) -> int:
    """The exit code of one run, or minus the signal that killed it."""
    child = os.fork()
    if not child:
        os.setsid()
        os.environ["PENSTOCK_FAIL"] = fail
        drained(home, alerts(url), rows=20)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    for line in sys.stdin:
        home, url, fails = json.loads(line)
        print(json.dumps([ended(Path(home), url, fail) for fail in fails]), flush=True)
