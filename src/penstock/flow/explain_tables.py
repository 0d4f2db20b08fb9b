"""What `plan` says of tables and of the steps that look things up in them."""

from collections.abc import Iterator

from penstock.core.time import duration_text
from penstock.flow import plan

Facts = Iterator[tuple[str, str]]


def versions(given: plan.Versions) -> Facts:
    if given.static:
        yield "rows", given.static.path or f"{len(given.static.rows):,} written in the flow"
    elif given.op:
        yield "changes", f"as column {given.op} says"
    else:
        told = {"detect": "rows, or envelopes of Debezium", "rows": "rows", "debezium": "envelopes of Debezium"}
        yield "changes", told[given.form]


def tables(step: plan.Latest | plan.Enrich | plan.TableJoin) -> Facts:
    match step:
        case plan.Latest(by, order, by_position):
            yield "by", ", ".join(by)
            yield (
                "keeps",
                "the newest by " + ("place in the database" if by_position else ", ".join([*([order] if order else []), "time"])),
            )
        case plan.TableJoin(on, how, _, _, key):
            yield "on", f"{', '.join(on)}, {how}"
            yield "key", ", ".join(key) or "its position"
        case plan.Enrich():
            yield from _enrich(step)


def _enrich(step: plan.Enrich) -> Facts:
    same = step.on == step.key
    pairs = [mine if same else f"{mine} = {theirs}" for mine, theirs in zip(step.on, step.key, strict=True)]
    yield "on", f"{', '.join(pairs)}, {step.how}"
    yield "as of", "the row's time" if step.as_of == "event" else "the time the log took the row"
    if step.wait is not None:
        yield "waits", duration_text(step.wait)
    if step.correct:
        yield "corrects", f"answers, up to {duration_text(step.allowed)}"
    if step.as_of == "event":
        yield "history", duration_text(step.history) if step.history is not None else "for ever"
