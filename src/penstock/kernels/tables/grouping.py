"""Aggregates over the current rows of a table: rows come, change and go, and a group says what a query over its rows would say.

Where every aggregate can be taken back exactly, groups are kept as sums; else their rows are kept, and groups that are touched are
aggregated anew.
"""

from collections.abc import Sequence

import pyarrow as pa

from penstock.kernels.port import Kernel
from penstock.kernels.tables.grouping_results import GroupResults
from penstock.kernels.tables.grouping_rows import RowsKernel
from penstock.kernels.tables.grouping_sums import SumsKernel, can_be_taken_back
from penstock.plan import Grouping


def build(grouping: Grouping, inputs: Sequence[pa.Schema], output: pa.Schema) -> Kernel:
    results = GroupResults(grouping.by, grouping.aggregates, inputs[0], output)
    if can_be_taken_back(grouping.aggregates, inputs[0]):
        return SumsKernel(results, inputs[0])
    return RowsKernel(results, grouping.key)
