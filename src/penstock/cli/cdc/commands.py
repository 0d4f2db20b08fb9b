"""penstock cdc: databases followed; check, add, run, status, reconcile and remove captures."""

from typing import Any

import click

from penstock.cli.log import with_log
from penstock.cli.output import again_and_again, with_raw

LIMIT = "10GB"
_OUTPUT = with_raw(
    click.option("--output", type=click.Choice(["table", "jsonl", "csv"]), help="Default: a table on a terminal, else JSON lines.")
)
_TABLES = click.option(
    "--tables", multiple=True, metavar="TABLES", help="Such as orders,public.users or 'public.*'; may be repeated."
)
_ENGINE = click.option(
    "--engine",
    type=click.Choice(["postgres", "triggers", "debezium", "poll"]),
    help="How changes are read; by default what suits the URL: postgresql:// the database's log, sqlite:// triggers.",
)
_LIMIT = click.option("--limit", default=LIMIT, metavar="SIZE", help=f"Log kept by the database above which it gets loud; {LIMIT}.")
_PASSWORD = (
    click.option("--password-env", metavar="VARIABLE", help="The variable of the environment that holds the password."),
    click.option("--password-file", type=click.Path(dir_okay=False), metavar="FILE", help="The file that holds the password."),
)


def _password(command: Any) -> Any:
    for option in reversed(_PASSWORD):
        command = option(command)
    return command


@click.group()
def cdc() -> None:
    """Follow databases: every change of a table becomes a record of a topic, from an exact snapshot on.

    A table of the capture shop is the topic shop.SCHEMA.TABLE, in Debezium's envelope. A capture that is killed goes on where it
    was: nothing is lost and nothing doubled.

    \b
    penstock cdc check postgresql://shop@db/shop --tables 'public.*'
    penstock cdc add shop postgresql://shop@db/shop --tables orders,users --password-file ~/.shop-password
    penstock cdc run shop
    penstock cdc status
    """


@cdc.command()
@click.argument("url")
@_TABLES
@_ENGINE
@_password
@_OUTPUT
def check(
    url: str,
    tables: tuple[str, ...],
    engine: str | None,
    password_env: str | None,
    password_file: str | None,
    output: str | None,
) -> int:
    """Say whether the database at URL can be followed, and what mends it if not. Changes nothing.

    Rights, settings, room for a slot and, of each table, what identifies its rows. Below each line stand the statements that mend
    it. Exit code 4 if something has to be mended (✗); lines with ! are worth knowing and stop nothing.

    \b
    penstock cdc check postgresql://shop@db/shop
    penstock cdc check postgresql://shop@db/shop --tables 'public.*' --password-env SHOP_PASSWORD
    """
    from penstock.cli.cdc.adding import secret_of
    from penstock.cli.cdc.checking import run_check

    return run_check(url, tables, engine, secret_of(password_env, password_file), output)


@cdc.command()
@click.argument("name")
@click.argument("url", required=False)
@_TABLES
@click.option("--except", "without", multiple=True, metavar="TABLES", help="But not these; may be repeated.")
@_ENGINE
@click.option("--poll", metavar="DURATION", help="Read the tables again this often and write what differs, e.g. '1 hour'.")
@click.option("--topics", metavar="TEMPLATE", help="Names of topics; '{name}.{schema}.{table}' by default.")
@click.option("--flat", is_flag=True, help="Records that are the row alone, and a tombstone for a delete; no envelope.")
@click.option("--partitions", type=click.IntRange(min=1), metavar="N", help="Of each topic; 1 by default.")
@click.option("--option", "settings", multiple=True, metavar="NAME=VALUE", help="Tell Debezium's connector; may be repeated.")
@_password
@click.option("--dry-run", is_flag=True, help="Show what would be executed in the database, and change nothing.")
def add(
    name: str,
    url: str | None,
    password_env: str | None,
    password_file: str | None,
    **wishes: Any,
) -> None:
    """Prepare the database at URL and remember it as the capture NAME; or add tables to a capture that is there.

    Shows what is executed in the database. What `cdc check` finds wrong is refused, and what fails half-way is taken back. Nothing
    is followed until `penstock cdc run NAME`.

    A password is never a part of URL: --password-env, --password-file or PGPASSFILE say where it is, and it is read from there each
    time.

    \b
    penstock cdc add shop postgresql://shop@db/shop --tables orders,users --dry-run
    penstock cdc add shop postgresql://shop@db/shop --tables 'public.*' --except audit
    penstock cdc add shop --tables invoices
    penstock cdc add users postgresql://shop@db/shop --tables users --topics 'postgres.{table}' --flat
    penstock cdc add till sqlite:///var/lib/till.db --tables sales
    penstock cdc add crm postgresql://crm@db/crm --tables customers --poll "1 hour"
    penstock cdc add till mariadb://shop@db/till --tables sales --option database.ssl.mode=required
    """
    from penstock.cli.cdc.adding import Wishes, secret_of
    from penstock.cli.cdc.adding import add as carry_out

    carry_out(Wishes(name, url, secret=secret_of(password_env, password_file), **wishes))


@cdc.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--catch-up", is_flag=True, help="To the end of what is committed now, then stop.")
@click.option("--resnapshot", is_flag=True, help="After a lost slot or a restore: go on from now, and write what differs.")
@_LIMIT
@click.option("--quiet", is_flag=True, help="Only the closing line.")
def run(names: tuple[str, ...], catch_up: bool, resnapshot: bool, limit: str, quiet: bool) -> int:
    """Run the captures NAME...: first the rows that their tables have, then every change, until Ctrl-C.

    A database that is away is waited for. A capture runs once: a second one is refused. Ctrl-C ends behind the batch that is being
    written; the next start goes on there.

    \b
    penstock cdc run shop
    penstock cdc run shop crm --catch-up
    penstock cdc run shop --resnapshot
    penstock run flow.py --capture shop
    """
    from penstock.cli.cdc.running import run_captures
    from penstock.cli.topic.care import size_of

    most = size_of(limit, "--limit")
    if resnapshot:
        from penstock.cli.cdc.reconciling import run_resnapshot

        run_resnapshot(names, quiet)
    return run_captures(names, catch_up, quiet, most)


@cdc.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--follow", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", default="2 seconds", metavar="DURATION", help='How often with --follow; "2 seconds" by default.')
@_LIMIT
@_OUTPUT
def status(names: tuple[str, ...], follow: bool, every: str, limit: str, output: str | None) -> int:
    """Show captures: whether they run, how far behind they are, and how much log the database keeps for them.

    With a NAME also its topics. JSON lines have everything. Exit code 4 if a slot is lost, or the database keeps more log than
    --limit (or than 80 % of its own max_slot_wal_keep_size).

    \b
    penstock cdc status
    penstock cdc status shop --follow
    penstock cdc status --output jsonl --limit 1GB
    """
    from penstock.cli.cdc.status import print_status
    from penstock.cli.topic.care import size_of
    from penstock.core.time import duration

    most = size_of(limit, "--limit")
    if not follow:
        return print_status(names, output, most)

    def show() -> None:
        print_status(names, output, most)

    again_and_again(show, output, duration(every, "--every").total_seconds())
    return 0


@cdc.command()
@click.argument("name")
@_TABLES
@click.option("--repair", is_flag=True, help="Write what is missing in the topics, marked as repaired; the capture must not run.")
@click.option("--quiet", is_flag=True, help="No progress, only the result.")
@_OUTPUT
def reconcile(name: str, tables: tuple[str, ...], repair: bool, quiet: bool, output: str | None) -> int:
    """Prove that the topics of the capture NAME say what its tables say: row by row, at one snapshot of the database.

    Nobody has to stop for it: changes that come meanwhile are left out on both sides. Keys that differ are named, with how. Exit
    code 4 if there is a difference.

    \b
    penstock cdc reconcile shop
    penstock cdc reconcile shop --tables orders --repair
    """
    from penstock.cli.cdc.reconciling import run_reconcile

    return run_reconcile(name, tables, repair, output, quiet)


@cdc.command()
@click.argument("name")
@click.option("--keep-slot", is_flag=True, help="Leave what it has in the database: somebody else will use it, or drop it.")
@click.option("--topics", is_flag=True, help="Delete its topics, too.")
@click.option("--force", is_flag=True, help="Forget it even if its database cannot be reached.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(name: str, keep_slot: bool, topics: bool, force: bool, yes: bool) -> None:
    """Drop what the capture NAME has in its database (slot, publication, triggers), and forget it. Its topics stay.

    Refused while it runs, and when the database cannot be reached: what is left behind there would make its log grow without end.
    --force forgets it all the same, and shows the statements to be executed there later.

    \b
    penstock cdc remove shop
    penstock cdc remove shop --topics --yes
    """
    from penstock.cli.cdc.removing import question
    from penstock.cli.cdc.removing import remove as carry_out

    asked = question(name, keep_slot, topics)
    if not yes:
        click.confirm(asked, abort=True)
    carry_out(name, keep_slot, topics, force)


with_log(cdc)
