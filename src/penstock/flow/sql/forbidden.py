"""What an expression may not say: clocks, chance, other rows, other statements. Results must be a function of the log."""

from collections.abc import Iterator, Sequence

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from penstock.flow.place import Place


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOT_OF_THE_LOG = _words("""
    current_timestamp now current_date curdate current_time localtime localtimestamp sysdate getdate unix_timestamp()
    rand random randn randstr uniform uuid uuidv7 shuffle monotonically_increasing_id
    input_file_name input_file_block_start input_file_block_length spark_partition_id java_method reflect try_reflect
    current_user user session_user current_catalog current_database current_schema current_timezone version
""")
_AGGREGATES = _words("""
    any any_value approx_count_distinct approx_percentile approx_top_k array_agg avg bit_and bit_or bit_xor bitmap_construct_agg
    bitmap_or_agg bool_and bool_or collect_list collect_set corr count count_if count_min_sketch covar_pop covar_samp every first
    first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg kurtosis last last_value listagg max max_by
    mean median min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum
    try_avg try_sum var_pop var_samp variance
""")
_GENERATORS = _words("explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple window session_window")
_WINDOWS = _words("row_number rank dense_rank percent_rank cume_dist ntile lag lead nth_value")
_BEFORE_NO_CALL = frozenset((".", "like", "ilike", "rlike"))  # `name like any ('a%', 'b%')`
_NOW = frozenset(("now", "today", "tomorrow", "yesterday"))

_LOG_HINT = (
    "results must be a function of the log: take the time or the value from a column of the row "
    '(flow.stream(…, append_time="stored") adds the append time)'
)
_ROW_HINT = "an expression sees one row; to bring rows together use window(…).agg(…)"


def check_text(sql: str, tokens: Sequence[Token], at: Place) -> None:
    """Refuses what is more than one expression."""
    if not tokens:
        at.refuse("an expression is empty", hint='write Spark SQL, e.g. "amount > 100"')
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        at.refuse(f"cannot read {sql!r}: a semicolon ends a statement", hint="write one expression")
    if any(token.comments or token.token_type == TokenType.HINT for token in tokens):
        at.refuse(f"cannot read {sql!r}: there is a comment in it", hint="write the comment in Python")


def check_meaning(sql: str, tree: exp.Expression, tokens: Sequence[Token], at: Place) -> None:
    """Refuses what depends on more than the row: clocks, chance, the machine, other rows, other tables."""
    for name in (*_called(tokens), *_functions(tree)):
        _check_function(sql, name, at)
    for node in tree.walk():
        if isinstance(node, exp.Query):
            at.refuse(
                f"cannot evaluate {sql!r}: there is a query in it",
                hint="an expression sees one row; use join to bring streams together",
            )
        if isinstance(node, exp.Star):
            at.refuse(f"cannot evaluate {sql!r}: '*' is no expression", hint="name the columns")
        if isinstance(node, exp.Placeholder | exp.Parameter):
            at.refuse(f"cannot evaluate {sql!r}: there is a parameter in it", hint="put the value in with Python, e.g. an f-string")
        if isinstance(node, exp.Window):
            at.refuse(f"cannot evaluate {sql!r}: there is a window function in it", hint=_ROW_HINT)
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.name.strip().lower() in _NOW:
            at.refuse(f"cannot use {node.this.name!r} as a time: it reads the clock", hint=_LOG_HINT)


def _check_function(sql: str, name: str, at: Place) -> None:
    if name in _NOT_OF_THE_LOG:
        at.refuse(f"cannot use {name} in {sql!r}: its value is not in the log", hint=_LOG_HINT)
    if name in _AGGREGATES:
        at.refuse(f"cannot use {name} in {sql!r}: it is an aggregate", hint=_ROW_HINT)
    if name in _WINDOWS:
        at.refuse(f"cannot use {name} in {sql!r}: it is a window function", hint=_ROW_HINT)
    if name in _GENERATORS:
        at.refuse(f"cannot use {name} in {sql!r}: it makes several rows of one", hint="an expression gives one value for a row")


def _called(tokens: Sequence[Token]) -> Iterator[str]:
    """Names with a bracket behind them, as they were written."""
    for i, token in enumerate(tokens[:-1]):
        before = tokens[i - 1].text.lower() if i else ""
        if tokens[i + 1].token_type == TokenType.L_PAREN and before not in _BEFORE_NO_CALL:
            name = token.text.lower()
            empty = i + 2 < len(tokens) and tokens[i + 2].token_type == TokenType.R_PAREN
            yield "unix_timestamp()" if name == "unix_timestamp" and empty else name


def _functions(tree: exp.Expression) -> Iterator[str]:
    """Functions that need no brackets, like current_date."""
    for node in tree.find_all(exp.Func):
        if not node.args.get("this") and not isinstance(node, exp.Anonymous):
            yield from (name.lower() for name in node.sql_names())
