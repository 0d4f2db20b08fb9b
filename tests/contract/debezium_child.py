"""Runs a capture until it is killed; argv: a home, in which definition.json says what is followed."""

import json
import sys
from pathlib import Path

from penstock.capture.debezium.kind import DebeziumKind
from penstock.capture.definition import CaptureDefinition
from penstock.capture.runner import CaptureRun
from penstock.log.file.log import FileLog
from penstock.storage.local import LocalStorage


def main(home: Path) -> None:
    definition = CaptureDefinition.of(json.loads((home / "definition.json").read_text()))
    engine = DebeziumKind().open(definition, LocalStorage(home / "engine"))
    CaptureRun(definition, FileLog(LocalStorage(home / "log")), LocalStorage(home / "capture"), engine).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
