"""Changes of a batch, put together by table and in the order of their transactions."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from penstock.capture.port import Changes, Table


def by_table(changes: Iterable[Changes]) -> dict[Table, Changes]:
    """One value for each table."""
    found: dict[Table, list[Changes]] = {}
    for each in changes:
        if len(each):
            found.setdefault(each.table, []).append(each)
    return {table: together(parts) for table, parts in found.items()}


def together(parts: Sequence[Changes]) -> Changes:
    """Changes of one table in their order; of those at the same place, the ones that are given first stand first."""
    if len(parts) == 1:
        return parts[0]
    transaction = np.concatenate([each.transaction for each in parts])
    index = np.concatenate([each.index for each in parts])
    order = np.lexsort((index, transaction))
    sources = [each.source for each in parts if each.source is not None]
    return Changes(
        parts[0].table,
        np.concatenate([each.op for each in parts])[order],
        pa.concat_arrays([each.key for each in parts]).take(order),
        pa.concat_arrays([each.before for each in parts]).take(order),
        pa.concat_arrays([each.after for each in parts]).take(order),
        transaction[order],
        index[order],
        pa.concat_arrays(sources).take(order) if len(sources) == len(parts) else None,
    )
