"""The captures of a home: a directory each, with its definition and what its engine keeps."""

from pathlib import Path

import orjson

from penstock.capture.definition import CaptureDefinition
from penstock.core.names import check_name
from penstock.errors import AlreadyThere, Damaged, NotFound
from penstock.storage.home import Home, find_home
from penstock.storage.local import LocalStorage
from penstock.storage.port import Storage

ENGINE = "engine"  # the directory of its engine alone
LOCK = "lock"  # held by whoever runs, changes or removes a capture
_DEFINITIONS = "definitions"  # numbered, the last one counts: a file is written once


class Captures:
    """Adds, finds and removes them."""

    def __init__(self, home: Path | None = None) -> None:
        self._path = Home(home or find_home()).captures
        self._home = LocalStorage(self._path.parent)

    def add(self, definition: CaptureDefinition) -> None:
        """Remembers a new one; AlreadyThere if there is one of that name."""
        check_name(definition.name, "capture")
        if definition.name in self.names():
            raise AlreadyThere(f"there is a capture {definition.name!a} already", hint="penstock cdc status shows it")
        for left in self._home.list(f"{self._path.name}/{definition.name}"):  # by a removal that was killed
            if left not in (_DEFINITIONS, LOCK):
                self.storage(definition.name).remove(left)
        self._put(definition, 0)

    def change(self, definition: CaptureDefinition) -> None:
        """Remembers it as it is now."""
        numbers = self._numbers(self.get(definition.name).name)
        self._put(definition, numbers[-1] + 1)
        for number in numbers:
            self.storage(definition.name).remove(f"{_DEFINITIONS}/{number}", durable=False)

    def get(self, name: str) -> CaptureDefinition:
        """The capture of this name; NotFound names those that are there."""
        check_name(name, "capture")
        numbers = self._numbers(name)
        if not numbers:
            there = ", ".join(self.names())
            raise NotFound(
                f"there is no capture {name!a} in {self._path.parent}",
                hint=f"there are: {there}" if there else "penstock cdc add NAME URL --tables … adds one",
            )
        data = self.storage(name).read(f"{_DEFINITIONS}/{numbers[-1]}").to_pybytes()
        try:
            return CaptureDefinition.of(orjson.loads(data))
        except orjson.JSONDecodeError as error:
            raise Damaged(f"the definition of capture {name!a} cannot be read", str(error)) from error

    def names(self) -> list[str]:
        return [name for name in LocalStorage(self._path.parent).list(self._path.name) if self._numbers(name)]

    def remove(self, name: str) -> None:
        """Forgets it, with what its engine keeps here. Topics stay."""
        LocalStorage(self._path.parent).remove(f"{self._path.name}/{self.get(name).name}")

    def storage(self, name: str) -> Storage:
        """The directory of a capture."""
        return LocalStorage(self._path / name)

    def engine_storage(self, name: str) -> Storage:
        """A directory in it for its engine alone."""
        return LocalStorage(self._path / name / ENGINE)

    def _numbers(self, name: str) -> list[int]:
        return sorted(int(number) for number in self.storage(name).list(_DEFINITIONS) if number.isdigit())

    def _put(self, definition: CaptureDefinition, number: int) -> None:
        data = orjson.dumps(definition.json(), option=orjson.OPT_INDENT_2)
        self.storage(definition.name).publish(f"{_DEFINITIONS}/{number}", data)
