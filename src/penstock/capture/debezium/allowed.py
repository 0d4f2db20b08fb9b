"""What users may tell Debezium's connectors: settings of speed and of the connection, by name. All else is refused: some settings
name classes, files and addresses, with which whoever may add a capture could read or run what they may not."""

import re
from collections.abc import Mapping

from penstock.errors import BadInput

_NUMBER, _FLAG, _NAME = r"[0-9]{1,12}", r"true|false", r"[A-Za-z0-9_$#]{1,128}"
ALLOWED: Mapping[str, str] = {  # what each may be
    "connect.timeout.ms": _NUMBER,
    "database.encrypt": _FLAG,
    "database.names": rf"{_NAME}(,{_NAME})*",
    "database.pdb.name": _NAME,
    "database.query.timeout.ms": _NUMBER,
    "database.ssl.mode": r"disabled?|preferred|required|trust|verify[_-]ca|verify_identity|verify-full",
    "database.sslmode": r"disable|allow|prefer|require|verify-ca|verify-full",
    "log.mining.strategy": r"[a-z_]{1,40}",
    "max.batch.size": _NUMBER,
    "max.queue.size": _NUMBER,
    "max.queue.size.in.bytes": _NUMBER,
    "min.row.count.to.stream.results": _NUMBER,
    "poll.interval.ms": _NUMBER,
    "snapshot.fetch.size": _NUMBER,
    "snapshot.lock.timeout.ms": _NUMBER,
    "status.update.interval.ms": _NUMBER,
}


def allowed(given: Mapping[str, object]) -> dict[str, str]:
    """The same settings as texts; BadInput if one may not be given, or not so. Values are not shown: one may be a secret."""
    found = {str(name): str(value) for name, value in given.items()}
    for name, value in found.items():
        if name not in ALLOWED:
            raise BadInput(f"Debezium cannot be told {name[:60]!a}", hint=f"it can be told {', '.join(ALLOWED)}")
        if not re.fullmatch(ALLOWED[name], value, re.ASCII):
            raise BadInput(f"{name} cannot be that", hint=f"it looks like {ALLOWED[name]}")
    return found
