"""The changes of all tables of a capture, one behind the other as they were committed."""

import orjson

from penstock import open_log
from penstock.log.consumer import records

CAPTURE, TABLES = "store", ("orders", "items")


def changes() -> list[str]:
    """Op, table, key and row of each change."""
    log = open_log()
    found = []
    for table in TABLES:
        for name in log.topics():
            if name.startswith(f"{CAPTURE}.") and name.endswith(f".{table}"):
                found += [(orjson.loads(each.value), each.key, table) for each in records(log.topic(name)) if each.value]
    ended = [orjson.loads(each.value) for each in records(log.topic(f"{CAPTURE}.transaction"))]
    order = {each["id"]: place for place, each in enumerate(ended) if each["status"] == "END"}
    found.sort(key=lambda change: (order[change[0]["transaction"]["id"]], change[0]["transaction"]["total_order"]))
    return [_line(change, key or b"", table) for change, key, table in found]


def _line(change: dict[str, object], key: bytes, table: str) -> str:
    row = orjson.dumps(change["after"]).decode() if change["after"] else ""
    return f"{change['op']} {table} {key.decode()} {row}".rstrip()


if __name__ == "__main__":
    print("\n".join(changes()))
