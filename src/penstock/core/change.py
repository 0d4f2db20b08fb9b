"""Changes: what an updating stream is made of."""

from enum import IntEnum


class Op(IntEnum):
    """What a row of a changelog says about its key."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3
