"""`penstock` on a disk whose locks nobody else sees: every lock of a flow is had at once."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.cli.main import main
from penstock.storage.local import LocalStorage

_lock = LocalStorage.lock


@contextmanager
def lock(self: LocalStorage, path: str, wait: bool = True) -> Iterator[bool]:
    if path == "lock":
        yield True
    else:
        with _lock(self, path, wait) as held:
            yield held


if __name__ == "__main__":
    LocalStorage.lock = lock  # type: ignore[method-assign]
    main()
