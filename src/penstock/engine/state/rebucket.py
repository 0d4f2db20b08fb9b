"""Another number of state buckets for a flow that is not running: its state is cut anew, and a decision says so."""

import time
from collections.abc import Callable
from dataclasses import replace

from penstock.engine.run.context import Fail
from penstock.engine.run.epoch.decision import Decision, Decisions
from penstock.engine.run.epoch.history import keep_record
from penstock.engine.run.lock import held_lock, this_process
from penstock.engine.state.refs import RunRef
from penstock.engine.state.report import decided
from penstock.engine.state.runs import StateWriter, rebucket
from penstock.sinks.port import nothing

MOST = 1024


def rebucket_flow(decisions: Decisions, buckets: int, say: Callable[[str], None], fail: Fail = nothing) -> Decision:
    """Takes the flow (Held: somebody runs it), cuts its state, and decides an epoch without rows. Until then nothing has
    changed: files that were written are swept as those of any epoch that was not decided. After it the next start goes on."""
    lock = held_lock(decisions)
    try:
        last = decided(decisions)
        if last.buckets == buckets:
            say(f"flow {decisions.flow} has {buckets} buckets already")
            return last
        owner = decisions.owner() | this_process()  # what the flow's own start told of its steps still holds
        generation = decisions.generation(owner)
        started = time.perf_counter()
        state = _cut(decisions, last, buckets, say)
        fail("after_cut")
        decision = _decision(last, generation, buckets, state)
        decisions.publish(decision)
        fail("after_decide")
        seconds = time.perf_counter() - started
        keep_record(decisions.storage, decision, seconds, {"rebucket": seconds}, 0)
        say(f"decided as epoch {decision.epoch}; the next start goes on with {buckets} buckets")
        return decision
    finally:
        lock.__exit__(None, None, None)


def _cut(decisions: Decisions, last: Decision, buckets: int, say: Callable[[str], None]) -> tuple[RunRef, ...]:
    """One step and bucket after the other, so that no more than one bucket of a step is held at once."""
    of_sources = [ref for ref in last.state if ref.step in last.sources]  # by partition, not by hash
    made: list[RunRef] = []
    for step in sorted({ref.step for ref in last.state} - set(last.sources)):
        refs = [ref for ref in last.state if ref.step == step]
        say(f"{step}: {sum(ref.rows for ref in refs):,} rows from {last.buckets} buckets into {buckets}")
        for bucket in range(buckets):
            writer = StateWriter(decisions.storage, last.epoch + 1)
            rebucket(decisions.storage, writer, refs, step, bucket, buckets)
            made += writer.write()
    return (*of_sources, *made)


def _decision(last: Decision, generation: int, buckets: int, state: tuple[RunRef, ...]) -> Decision:
    return replace(
        last, epoch=last.epoch + 1, generation=generation, buckets=buckets, state=state, ranges={}, marks=(), staged=(), rows=0
    )
