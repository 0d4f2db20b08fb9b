"""Messages gathered into batches that hold whole transactions only."""

from collections.abc import Sequence

from penstock.capture.postgres.decode.messages import BEGIN, COMMIT

BOUND = 64 << 20


class Batcher:
    """Takes messages as they come and gives them out up to the last commit; an unfinished transaction is held back. `held` says how
    many bytes it has. Once it is `full` no more should be given to it: `take`, and if it is still full, the transaction alone is
    larger than the bound, and `take_part` gives out what is there of it."""

    def __init__(self, bound: int = BOUND) -> None:
        self.bound = bound
        self.held = 0
        self._messages: list[bytes] = []
        self._whole = 0  # of the messages
        self._unfinished = 0  # in bytes
        self._open = False

    @property
    def full(self) -> bool:
        return self.held >= self.bound

    @property
    def has_whole(self) -> bool:
        """Whether `take` has something to give."""
        return self._whole > 0

    def add(self, message: bytes) -> None:
        self.add_all([message])

    def add_all(self, messages: Sequence[bytes]) -> None:
        # What is wrong with an empty message is said where it is decoded.
        kinds, size = bytes([message[0] if message else 0 for message in messages]), sum(map(len, messages))
        begin, commit = kinds.rfind(BEGIN), kinds.rfind(COMMIT)
        self._open = begin > commit if max(begin, commit) >= 0 else self._open
        whole = len(messages) if not self._open else max(begin, 0)
        if whole or begin == 0:
            self._whole = len(self._messages) + whole
            self._unfinished = size - sum(map(len, messages[:whole])) if self._open else 0
        else:
            self._unfinished += size
        self._messages += messages
        self.held += size

    def take(self) -> list[bytes]:
        """All that is whole; it is not held any longer."""
        taken, self._messages = self._messages[: self._whole], self._messages[self._whole :]
        self._whole, self.held = 0, self._unfinished
        return taken

    def take_part(self) -> list[bytes]:
        """All that is there, the last transaction as far as it has come: its changes count only if its commit follows."""
        taken, self._messages = self._messages, []
        self._whole, self.held, self._unfinished = 0, 0, 0
        return taken

    def give_back(self, messages: Sequence[bytes], within: bool) -> None:
        """The last of those that were taken, to be taken again. within: whether they begin inside of a transaction."""
        rest, self._messages = self._messages, []
        self._whole, self.held, self._unfinished, self._open = 0, 0, 0, within
        self.add_all([*messages, *rest])
