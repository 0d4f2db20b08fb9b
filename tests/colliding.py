"""Keys that really share a hash, so that a test of collisions needs no other hash function.

`hash64` sums the bytes of a text, each times a power of one base, modulo 2**64. These are two short vectors of the lattice of all
differences that this sum cannot see: whatever text they are added to, its hash stays.
"""

from itertools import product

_UNSEEN = (
    (-3, 0, -8, -5, 3, 6, -2, -12, -4, -13, 12, 5, 1, -2),
    (3, 11, -5, 7, 13, -12, 1, 7, -2, -2, -5, 0, 11, -3),
)


def colliding(count: int) -> list[str]:
    """So many keys of one hash, in rising order: a part of 14 letters has four forms, however often it is repeated."""
    parts = 1
    while 4**parts < count:
        parts += 1
    return sorted("".join(forms) for forms in product(_FORMS, repeat=parts))[:count]


def _form(first: bool, second: bool) -> str:
    shifts = [sum(take * vector[i] for take, vector in zip((first, second), _UNSEEN, strict=True)) for i in range(14)]
    lowest = [min(0, a, b, a + b) for a, b in zip(*_UNSEEN, strict=True)]
    return "".join(chr(ord("a") + shift - least) for shift, least in zip(shifts, lowest, strict=True))


_FORMS = [_form(first, second) for first in (False, True) for second in (False, True)]
