"""A plan for people: as text, and as a Mermaid diagram."""

import pyarrow as pa

from penstock import plan
from penstock.core.names import RESERVED_PREFIX
from penstock.core.schema import Schema


def as_text(checked: plan.Plan) -> str:
    """The steps in order, each with what it does, reads, gives and where its expressions run; then the outputs."""
    lines = [f"flow {checked.flow}"]
    for step in checked.steps:
        lines += ["", f"{step.name}  ({step.node.kind}, {step.origin})"]
        if step.inputs:
            lines.append(f"  from     {', '.join(step.inputs)}")
        lines += [f"  {label:<8} {text}" for label, text in step.node.facts()]
        lines += [f"  on error {step.on_error}"] if step.on_error != "dead" else []
        lines.append(f"  gives    {_shown(step.schema)}{' (updating)' if step.updating else ''}")
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
        left, right = ("([", "])") if output.topic else ("[(", ")]")
        lines.append(f"    o{i}{left}{_quoted(f'{output.kind} {output.name}')}{right}")
        lines.append(f"    {ids[output.input]} --> o{i}")
    return "\n".join(lines) + "\n"


def _shown(schema: Schema) -> str:
    """Its columns, without those that steps have among themselves."""
    return Schema(pa.schema([f for f in schema if not f.name.startswith(RESERVED_PREFIX)])).ddl()


def _target(output: plan.Output) -> str:
    return f"{output.kind} {output.name}, {output.definition.details(output.key)}"


def _shape(step: plan.Step) -> str:
    topic = step.node.reads_topic()
    if topic is not None:
        return f"([{_quoted(f'topic {topic}')}])"
    facts = [
        text
        for label, text in step.node.facts()
        if label in ("keeps", "makes", "by", "size", "every", "gap", "over", "on", "within", "where", "calls")
    ]
    return f"[{_quoted('<br/>'.join([f'{step.name} · {step.node.kind}', *facts]))}]"


def _edge(step: plan.Step) -> str:
    return "|late|" if step.node.tap is not None else ""


def _quoted(text: str) -> str:
    """Text in a Mermaid label: its own signs written as entities, line breaks kept."""
    parts = text.split("<br/>")
    return (
        '"'
        + "<br/>".join(p.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;") for p in parts)
        + '"'
    )
