"""penstock check: what is wrong with a flow, before anything starts."""

import click

from penstock.cli.log import with_log


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FLOW.py...")
def check(files: tuple[str, ...]) -> None:
    """Check flows without running them: columns, types, time, names, bounds.

    \b
    penstock check shop.py
    """
    from penstock.cli.flow.load import load_flows
    from penstock.engine.run.runtime import Runtime, log_of
    from penstock.storage.home import find_home

    graphs = load_flows(files)
    runtime = Runtime(find_home(), url=log_of(graphs))
    for graph in graphs:
        plan = runtime.plan(graph, graphs)
        outputs = ", ".join(f"{o.kind} {o.name}" for o in plan.outputs)
        click.echo(f"{plan.flow}: ok · {len(plan.steps)} step{'s' if len(plan.steps) > 1 else ''} · writes {outputs}")


with_log(check)
