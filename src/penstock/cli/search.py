"""`penstock search`: rows of a search index that have the words."""

import click

from penstock.cli.output import OUTPUTS, print_table, safe, with_raw


@click.command()
@click.argument("name")
@click.argument("text", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="At most so many rows.")
@with_raw(click.option("--output", type=click.Choice(OUTPUTS), help="How rows are printed; a table on a terminal, else jsonl."))
def search(name: str, text: tuple[str, ...], limit: int, output: str | None) -> int | None:
    """Rows of a search index that have all words of TEXT, the best first.

    NAME is an index of the home, or the path of one, with a / in it. A flow writes it: products.sink(search("products")).

    \b
    penstock search products red shoes         both words, anywhere in the row
    penstock search products '"red shoes"'     side by side
    penstock search products 'sho*'            words that begin like this
    penstock search ./products.db shoes        a file

    Anything else in TEXT is text: there are no other signs to know, or to get wrong. Nothing found ends with exit code 3.
    """
    from penstock.views.search import SCORE, SearchIndex

    with SearchIndex(name) as index:
        rows = index.find(" ".join(text), limit).drop_columns([SCORE])
        if not rows.num_rows:
            click.echo(safe(f"search index {name} has no row with {' '.join(text)}"), err=True)
            return 3
        print_table(rows, output, keys=index.meta.key)
    return None
