"""What an updating step sent, folded by key; and what must hold of every change on the way."""

from collections.abc import Sequence
from typing import Any

from penstock.core.change import Op
from penstock.core.columns import OP
from unit.kernels.cutting import Outcome, counted

Shown = dict[str, Any]


def folded(out: Outcome, key: Sequence[str], told: Sequence[str] = ()) -> list[Shown]:
    """What is shown in the end. A change takes back what was sent last; there is one a key and epoch at most, and deletes come
    first. told: columns that say something of the change alone."""
    shown: dict[Any, Shown] = {}
    for epoch in out.epochs:
        _hold_order([Op(c[OP]) for c in epoch])
        changed: list[Any] = []
        for change in epoch:
            row = {name: value for name, value in change.items() if name != OP}
            name = tuple(row[column] for column in key)
            if change[OP] in (Op.DELETE, Op.UPDATE_BEFORE):
                assert counted([shown.pop(name)]) == counted([row])
            else:
                assert name not in shown
                shown[name] = row
            if change[OP] != Op.UPDATE_BEFORE:
                changed.append(name)
        assert len(set(changed)) == len(changed)
    return [{n: v for n, v in row.items() if n not in told} for row in shown.values()]


def _hold_order(ops: list[Op]) -> None:
    """Updates are whole, and deletes come before what is new."""
    assert ops.count(Op.UPDATE_BEFORE) == ops.count(Op.UPDATE_AFTER)
    new = [i for i, op in enumerate(ops) if op in (Op.INSERT, Op.UPDATE_AFTER)]
    old = [i for i, op in enumerate(ops) if op in (Op.DELETE, Op.UPDATE_BEFORE)]
    assert len({ops[i] for i in new}) < 3 or max(old, default=-1) < min(new, default=0)
