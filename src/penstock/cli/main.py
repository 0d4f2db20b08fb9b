"""The command `penstock`: finds the subcommand, runs it, and turns whatever goes wrong into one readable paragraph.

A subcommand is imported when it is called, so `penstock --help` loads nothing heavy. What a command returns, if it is a number,
is the exit code: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 unhealthy, 5 replaced.
"""

import difflib
import os
import sys
import traceback
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, NoReturn

import click

from penstock.cli.log import HELP, take
from penstock.errors import PenstockError

INTERRUPTED = 130
# Text from the log may stand in a message: what would steer a terminal is shown, not sent. Newline and tab stay.
_SHOWN = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if code not in (9, 10)}


class Place(NamedTuple):
    """Where a subcommand lives, and the line that the list of commands shows for it."""

    target: str  # module:attribute
    help: str


COMMANDS = {
    "demo": Place("penstock.demo.command:demo", "A shop, live: orders, payments, a crash, and books that balance."),
    "run": Place("penstock.cli.flow.run:run", "Run flows: until stopped, to the end of the log, or to the end of time."),
    "check": Place("penstock.cli.flow.check:check", "Say whether a flow can run, and if not, what to change."),
    "plan": Place(
        "penstock.cli.flow.plan:plan", "Show the steps of a flow as text, as a diagram, or as Spark's plan; or draw its time."
    ),
    "flow": Place("penstock.cli.flow.commands:flow", "List and describe flows; start one over, go on after a drain, remove it."),
    "topic": Place(
        "penstock.cli.topic.commands:topic", "Create, alter, list, describe, write, read, mark, clean and delete topics."
    ),
    "group": Place("penstock.cli.group.commands:group", "Look at groups of readers: owners, lag, what blocks them; set them back."),
    "queue": Place(
        "penstock.cli.queue.commands:queue",
        "Create, list, describe, write, read, move, redrive and delete queues of single messages.",
    ),
    "bridge": Place(
        "penstock.cli.bridge.commands:bridge", "Move messages of queues into topics, and records of topics into queues."
    ),
    "cdc": Place("penstock.cli.cdc.commands:cdc", "Follow databases: check, add, run, show, reconcile and remove captures."),
    "events": Place(
        "penstock.cli.events.commands:events", "Look into event stores: streams, state at any moment, history, audits."
    ),
    "view": Place("penstock.cli.view:view", "List, show, look up and follow views."),
    "sink": Place(
        "penstock.cli.sink.commands:sink", "Look at what flows write to: how far each sink has come, and what keeps it away."
    ),
    "search": Place("penstock.cli.search:search", "Find rows of search indexes by their words."),
    "state": Place("penstock.cli.flow.state:state", "Show what flows keep between epochs; cut it into more or fewer buckets."),
    "fates": Place("penstock.cli.flow.fates:fates", "The books: what became of every row."),
    "dead": Place("penstock.cli.dead.commands:dead", "List and show the rows on which flows failed; send their records back."),
    "why": Place("penstock.cli.flow.why:why", "Tell what became of one record, and which setting would have changed it."),
    "epochs": Place("penstock.cli.flow.epochs:epochs", "Show how long the last epochs took, step by step."),
    "ingest": Place("penstock.cli.flow.ingest:ingest", "Write any Spark stream into a topic, exactly once."),
    "pack": Place("penstock.cli.pack:pack", "Pack penstock and its libraries for the executors of a cluster."),
    "doctor": Place("penstock.cli.doctor:doctor", "Check home, Java, versions, log and state; say what to do."),
}


@dataclass
class Settings:
    """What was said before the subcommand; commands get it as `ctx.obj`."""

    home: Path | None = None  # also put into PENSTOCK_HOME, which the home is found by
    verbose: bool = False


class LazyGroup(click.Group):
    """A group that knows its commands by name and help line, and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            close = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            if close:
                ctx.fail(f"there is no command {cmd_name!r}; did you mean {close[0]}?")
            return None
        module, _, attribute = place.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("penstock"), prog_name="penstock", message="%(prog)s %(version)s")
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="Where log, state and views are.")
@click.option("--log", metavar="URL", help=HELP, callback=take, expose_value=False)
@click.option("--verbose", is_flag=True, help="Show stack traces, Java's too, when something fails.")
@click.pass_context
def cli(ctx: click.Context, home: Path | None, verbose: bool) -> None:
    """Stream processing on Spark. The log is the truth; everything else is a view kept up to date, exactly once.

    Home is --home, else PENSTOCK_HOME, else the nearest .penstock upwards from here, else ./.penstock.
    The log is in it, unless --log or PENSTOCK_LOG leads to a Kafka broker.
    """
    if home is not None:
        os.environ["PENSTOCK_HOME"] = str(home.absolute())
    if verbose:
        os.environ["PENSTOCK_SPARK_LOG"] = "-"
    ctx.obj = Settings(home, verbose)


def printable(text: str) -> str:
    """The text with what would steer a terminal made visible."""
    return text.translate(_SHOWN)


def report(error: BaseException, verbose: bool = False) -> int:
    """Prints the error as one paragraph on standard error and returns the exit code it asks for."""
    if verbose:
        traceback.print_exception(error)
    if isinstance(error, PenstockError):
        text, code = str(error), error.exit_code
    else:
        text, code = f"{type(error).__name__}: {error}\n  hint: unexpected error; --verbose shows where it happened", 1
    click.echo(printable(f"error: {text}"), err=True)
    return code


def run(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    settings = Settings()
    try:
        with cli.make_context("penstock", list(arguments)) as ctx:
            settings = Settings(verbose=bool(ctx.params.get("verbose")))
            result = cli.invoke(ctx)
        sys.stdout.flush()  # here, where a reader that has left is noticed in peace
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except Exception as error:
        return report(error, settings.verbose)


def _reader_left() -> int:
    """Whoever read our output (`| head`) has gone: nothing to say, and nothing left to flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def main() -> NoReturn:
    """The entry point of the command `penstock`."""
    sys.exit(run())
