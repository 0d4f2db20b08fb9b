"""A plan for people: as text, and as a Mermaid diagram."""

from collections.abc import Iterator

from penstock.core.expression import Expression
from penstock.core.time import duration_text
from penstock.flow import plan
from penstock.flow.explain_tables import tables, versions
from penstock.flow.rows import is_passed_on


def as_text(checked: plan.Plan) -> str:
    """The steps in order, each with what it does, reads, gives and where its expressions run; then the outputs."""
    lines = [f"flow {checked.flow}"]
    for step in checked.steps:
        lines += ["", f"{step.name}  ({_kind(step.definition)}, {step.origin})"]
        if step.inputs:
            lines.append(f"  from     {', '.join(step.inputs)}")
        lines += [f"  {label:<8} {text}" for label, text in _facts(step)]
        lines += [f"  on error {step.on_error}"] if step.on_error != "dead" else []
        lines.append(f"  gives    {step.schema.ddl()}{' (updating)' if step.updating else ''}")
    lines.append("")
    for output in checked.outputs:
        lines.append(f"{output.input} → {_target(output)}  ({output.origin})")
    return "\n".join(lines) + "\n"


def as_mermaid(checked: plan.Plan) -> str:
    """The plan as a Mermaid flowchart: topics as pipes, steps as boxes, views as stores."""
    lines = ["flowchart LR"]
    ids = {step.name: f"s{i}" for i, step in enumerate(checked.steps)}
    for step in checked.steps:
        lines.append(f"    {ids[step.name]}{_shape(step)}")
        lines += [f"    {ids[name]} -->{_edge(step)} {ids[step.name]}" for name in step.inputs]
    for i, output in enumerate(checked.outputs):
        left, right = ("[(", ")]") if output.kind == "view" else ("([", "])")
        lines.append(f"    o{i}{left}{_quoted(f'{output.kind} {output.name}')}{right}")
        lines.append(f"    {ids[output.input]} --> o{i}")
    return "\n".join(lines) + "\n"


def _facts(step: plan.Step) -> Iterator[tuple[str, str]]:
    match step.definition:
        case plan.Source() as source:
            yield from _source(source)
        case plan.Where(condition):
            yield "keeps", f"{condition.text}  [{_where_it_runs(condition)}]"
        case plan.Select(columns):
            for name, e in columns:
                if not is_passed_on(name, e):
                    yield "makes", f"{name} = {e.text}  [{_where_it_runs(e)}]"
        case plan.MapArrow(function):
            yield "calls", f"{getattr(function, '__qualname__', repr(function))}  [python]"
        case plan.Lookup(remote, on, how):
            yield "on", f"{', '.join(on)}, {how}"
            yield "asks", remote.table if isinstance(remote, plan.Database) else getattr(remote, "__qualname__", repr(remote))
        case plan.Hidden(condition):
            yield "keeps", f"{condition.text}, else deleted  [{_where_it_runs(condition)}]"
        case plan.Window() | plan.Session() | plan.Count() | plan.Sliding() | plan.Running() | plan.Grouping() as keyed:
            yield from _aggregating(keyed)
        case plan.Last(size):
            yield "keeps", f"rows with time > watermark - {duration_text(size)}"
        case plan.Join() | plan.Pairs() | plan.Matched() as join:
            yield "on", f"{', '.join(join.on)}, {join.how}"
            yield "within", f"{duration_text(join.lo)} to {duration_text(join.hi)}"
            if join.condition:
                yield "where", f"{join.condition.text}  [{_where_it_runs(join.condition)}]"
            if join.late != "none":
                yield "judges", f"time ≥ watermark; late rows: {join.late}"
        case plan.Latest() | plan.Enrich() | plan.TableJoin() as table:
            yield from tables(table)
        case plan.LateRows(port):
            yield "takes", f"the late rows of its input {port + 1}" if port else "the late rows"
        case plan.Union():
            pass


def _aggregating(step: plan.Aggregating) -> Iterator[tuple[str, str]]:
    yield "by", ", ".join(step.by) or "everything"
    yield from _extent(step)
    for a in step.aggregates:
        given = ", ".join([*a.columns, *map(str, a.options)]) or "*"
        yield "makes", f"{a.name} = {a.function}({given})"
    if isinstance(step, plan.Running | plan.Grouping):
        return
    rule = "window_end > watermark" if isinstance(step, plan.Window) else "time ≥ watermark"
    allowed = f" up to {duration_text(step.allowed)}" if isinstance(step, plan.Window | plan.Session) and step.allowed else ""
    yield "judges", f"{rule}; late rows: {step.late}{allowed}"
    if isinstance(step, plan.Window | plan.Session):
        early = f", open ones every {duration_text(step.early)}" if step.early else ""
        yield "sends", f"{'complete windows' if step.emit == 'final' else 'every change'}{early}"


def _extent(step: plan.Aggregating) -> Iterator[tuple[str, str]]:
    match step:
        case plan.Window(_, plan.Calendar(unit, zone)):
            yield "size", f"a {unit} in {zone}"
        case plan.Window(_, plan.Spaced(size, every, offset)):
            yield "size", duration_text(size)
            if every != size:
                yield "every", duration_text(every)
            if offset:
                yield "offset", duration_text(offset)
        case plan.Session(_, gap, longest):
            yield "gap", duration_text(gap) + (f", at most {duration_text(longest)} long" if longest else "")
        case plan.Count(_, rows):
            yield "size", f"{rows:,} rows"
        case plan.Sliding(_, size):
            yield "size", f"{duration_text(size)} before each row"
        case plan.Grouping():
            yield "over", "the current rows"
        case plan.Running(_, _, keep):
            yield "over", f"all rows; a key goes when it was silent for {duration_text(keep)}" if keep else "all rows"


def _source(source: plan.Source) -> Iterator[tuple[str, str]]:
    yield "topic", source.topic
    yield "time", _time(source)
    if source.lateness is not None:
        yield "lateness", f"{duration_text(source.lateness)}, idle after {duration_text(source.idle)}"
    if source.delay is not None:
        yield "delay", f"{duration_text(source.delay)} behind the clock, when read to its end"
    if source.key:
        yield "key", ", ".join(source.key)
    if source.versions:
        yield from versions(source.versions)


def _time(source: plan.Source) -> str:
    clock = source.clock
    if clock:
        named = f"{clock.received or 'append time'} - {clock.sent} by {', '.join(clock.by)}"
        return f"{clock.happened} + least {named} within {duration_text(clock.span)}"
    return "append time" if source.append else source.time or "as the topic gives it"


def _where_it_runs(e: Expression) -> str:
    return "spark" if e.tree is None else "polars"


def _kind(definition: plan.Definition) -> str:
    names = {plan.MapArrow: "map", plan.LateRows: "late rows", plan.TableJoin: "join of tables", plan.Grouping: "running"}
    names |= {plan.Matched: "join"}
    if isinstance(definition, plan.Source):
        return _source_kind(definition)
    if isinstance(definition, plan.Window):
        return _window_kind(definition.layout)
    if isinstance(definition, plan.Session | plan.Count | plan.Sliding):
        return f"{type(definition).__name__.lower()} window"
    return names.get(type(definition), type(definition).__name__.lower())


def _source_kind(source: plan.Source) -> str:
    if source.versions is None:
        return "stream"
    return "static" if source.versions.static else "versions"


def _window_kind(layout: plan.Spaced | plan.Calendar) -> str:
    if isinstance(layout, plan.Calendar):
        return "calendar window"
    return "tumbling window" if layout.every == layout.size else "hopping window"


def _target(output: plan.Output) -> str:
    key = f"key {', '.join(output.key)}" if output.key else "key: its position" if output.kind == "view" else "no key"
    partitions = f", {output.partitions} partition{'s' if output.partitions > 1 else ''}" if output.kind == "topic" else ""
    return f"{output.kind} {output.name}, {key}{partitions}"


def _shape(step: plan.Step) -> str:
    if isinstance(step.definition, plan.Source):
        return f"([{_quoted(f'topic {step.definition.topic}')}])"
    facts = [
        text
        for label, text in _facts(step)
        if label in ("keeps", "makes", "by", "size", "every", "gap", "over", "on", "within", "where", "calls")
    ]
    return f"[{_quoted('<br/>'.join([f'{step.name} · {_kind(step.definition)}', *facts]))}]"


def _edge(step: plan.Step) -> str:
    return "|late|" if isinstance(step.definition, plan.LateRows) else ""


def _quoted(text: str) -> str:
    """Text in a Mermaid label: its own signs written as entities, line breaks kept."""
    parts = text.split("<br/>")
    return (
        '"'
        + "<br/>".join(p.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;") for p in parts)
        + '"'
    )
