"""Changes: what an updating stream is made of."""

from enum import IntEnum


class Op(IntEnum):
    """What a row of a changelog says about its key."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3


# System columns of the tables that travel between steps. User columns never start with two underscores.
TIME = "__t"  # int64: the row's event time in microseconds
WATERMARK = "__w"  # int64: W(r); NEVER once the row is judged or derived
POSITION = "__pos"  # binary: where the row comes from; compares as the order of ties
HASH = "__h"  # uint64: hash of the key of the step that the row goes to
LEFT, LEFT_TIME = "__left", "__left_t"  # binary, int64: of a pair, where its left row comes from, and its time
RIGHT, RIGHT_TIME = "__right", "__right_t"
OP = "__op"  # int8: only in updating streams, and in versions of tables
APPENDED = "__app"  # int64: when the log took the row; only where a step below looks at it
ADDRESS = "__at"  # int64: partition << 44 | offset, of records that come in the order of the log; POSITION is made from it
