"""penstock check and penstock plan: what a flow is, and what is wrong with it, before anything starts."""

import click


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FLOW.py...")
def check(files: tuple[str, ...]) -> None:
    """Check flows without running them: columns, types, time, names, bounds.

    \b
    penstock check shop.py
    """
    from penstock.cli.load import load_flows
    from penstock.engine.runtime import Runtime
    from penstock.storage.home import find_home

    runtime = Runtime(find_home())
    graphs = load_flows(files)
    for graph in graphs:
        plan = runtime.plan(graph, graphs)
        outputs = ", ".join(f"{o.kind} {o.name}" for o in plan.outputs)
        click.echo(f"{plan.flow}: ok · {len(plan.steps)} step{'s' if len(plan.steps) > 1 else ''} · writes {outputs}")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FLOW.py...")
@click.option("--format", "form", type=click.Choice(["text", "mermaid"]), default="text", show_default=True)
@click.option("--spark", is_flag=True, help="Also show how Spark runs it: tasks, shuffles, and the physical plan of SQL steps.")
def plan(files: tuple[str, ...], form: str, spark: bool) -> None:
    """Show the steps of flows: what they read, who judges rows, where expressions run, what they write.

    \b
    penstock plan shop.py
    penstock plan shop.py --format mermaid > shop.mmd
    penstock plan shop.py --spark
    """
    from penstock.cli.load import load_flows
    from penstock.engine.runtime import Runtime
    from penstock.flow.explain import as_mermaid, as_text
    from penstock.storage.home import find_home

    runtime = Runtime(find_home())
    graphs = load_flows(files)
    for graph in graphs:
        resolved = runtime.plan(graph, graphs)
        click.echo(as_mermaid(resolved) if form == "mermaid" else as_text(resolved))
        if spark:
            from penstock.engine.explain import spark_text

            click.echo(spark_text(runtime, resolved))
