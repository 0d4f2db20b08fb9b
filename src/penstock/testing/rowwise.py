"""map_arrow must be row-wise: what comes out for a row may not depend on the rows beside it."""

from collections.abc import Callable
from functools import wraps

import pyarrow as pa

from penstock.errors import BadFlow
from penstock.plan import Step

Function = Callable[[pa.Table], pa.Table]


def checked(function: Function, step: Step) -> Function:
    """The function, run a second time on two halves of every batch; a difference is an error."""

    @wraps(function)
    def run(rows: pa.Table) -> pa.Table:
        whole = function(rows)
        if rows.num_rows > 1 and isinstance(whole, pa.Table) and whole.num_rows == rows.num_rows:
            half = rows.num_rows // 2
            parts = [function(rows.slice(0, half)), function(rows.slice(half))]
            if not pa.concat_tables(parts).combine_chunks().equals(whole.combine_chunks()):
                raise BadFlow(
                    "the function of map_arrow gives another result when its batch is cut in two",
                    f'step "{step.name}" ({step.origin})',
                    hint="it must be row-wise, for where a batch ends is chance; window() and join() look across rows",
                )
        return whole

    return run
