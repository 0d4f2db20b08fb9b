"""penstock pack: what the executors of a cluster need to run flows, as one file."""

import sys
from collections.abc import Callable
from pathlib import Path

import click


@click.command()
@click.option("--archive", is_flag=True, help="The whole environment: Python, the libraries, penstock. Without: penstock alone.")
@click.option(
    "--include",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A module (.py) or package of your own that the flow's functions import; may be given several times.",
)
@click.option(
    "--with",
    "libraries",
    multiple=True,
    metavar="NAME",
    help="With --archive: one more installed library, with what it needs; may be given several times.",
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where to. [default: here, by version]"
)
@click.option("--quiet", is_flag=True, help="No progress.")
def pack(archive: bool, include: tuple[Path, ...], libraries: tuple[str, ...], out: Path | None, quiet: bool) -> None:
    """Pack what the executors of a cluster need to run flows.

    Without --archive: a zip of penstock and the modules you include; the workers have the same Python and the libraries. With
    --archive: an environment that is unpacked on each executor; the workers need Java alone, and the system that this machine has.
    The same input gives the same bytes. `penstock run` sends penstock along by itself, so a zip is only for your own modules.

    \b
    penstock pack --archive
    penstock pack --archive --with scikit-learn --include scoring.py --out env.tar.gz
    penstock run shop.py --master spark://host:7077 --pack env.tar.gz
    """
    if libraries and not archive:
        raise click.UsageError("--with goes with --archive: libraries with compiled files cannot be imported from a zip")
    from penstock.engine.spark.pack import CODE, ENVIRONMENT, default_name, pack_code, pack_environment

    path = out or Path(default_name(ENVIRONMENT if archive else CODE))
    shown = _shown(quiet)
    if archive:
        manifest = pack_environment(path, include, libraries, shown)
    else:
        manifest = pack_code(path, include, shown)
    names = [f"penstock {manifest.penstock}", *(f"{name} {version}" for name, version in manifest.libraries.items())]
    if archive:
        names.insert(0, f"Python {manifest.python}")
    if not quiet:
        click.echo(", ".join([*names, *manifest.included]), err=True)
    click.echo(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


def _shown(quiet: bool) -> Callable[[int, int], None]:
    """A line that is rewritten on a terminal; nothing elsewhere."""
    live = not quiet and sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        if live:
            click.echo(f"\r\x1b[2Kpacking {done / 1e6:,.0f} of {total / 1e6:,.0f} MB", nl=done == total, err=True)

    return show
