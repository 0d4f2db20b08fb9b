"""Names of topics for tables: `shop.public.orders` for table orders of schema public, followed under the name shop.

What a topic's name may not have, and the dot and the dash, which mean something in it, are escaped byte by byte as `-2e`, so that
every table has a topic of its own and every topic tells its table."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.core.names import check_name
from penstock.errors import BadName

Table = tuple[str, str]  # schema, table

USUAL = "{name}.{schema}.{table}"
TRANSACTIONS = "transaction"  # NAME.transaction tells where transactions begin and end
_PLAIN = re.compile(rb"[a-zA-Z0-9_]", re.ASCII)
_ESCAPED = r"(?:[a-zA-Z0-9_]|-[0-9a-f]{2})+"
_TEMPLATE = re.compile(
    r"[a-zA-Z0-9_.-]*\{(name|schema|table)\}(?:[a-zA-Z0-9_-]*\.[a-zA-Z0-9_.-]*\{(name|schema|table)\})*[a-zA-Z0-9_.-]*"
)


def escaped(text: str) -> str:
    """The text in letters, digits, `_` and escapes; two texts never become one."""
    return "".join(chr(byte) if _PLAIN.match(bytes([byte])) else f"-{byte:02x}" for byte in text.encode())


def unescaped(text: str) -> str:
    """What was escaped; BadName if it was not."""
    try:
        found = re.sub(rb"-(..)", lambda match: bytes([int(match[1], 16)]), text.encode()).decode()
    except ValueError:
        found = ""
    if not found or escaped(found) != text:
        raise BadName(f"{text!a} is no escaped name")
    return found


@dataclass(frozen=True)
class TopicNames:
    """The topics of one capture. template: what a topic is called, with {table}, and {name} and {schema} where they are wanted, a
    dot between them."""

    name: str
    template: str = USUAL

    def __post_init__(self) -> None:
        check_name(self.name, "capture")
        fields = re.findall(r"\{(\w*)\}", self.template)
        if not _TEMPLATE.fullmatch(self.template) or "table" not in fields or len(set(fields)) < len(fields):
            raise BadName(
                f"{self.template!a} cannot name topics", hint=f"use {{table}}, and {{name}} and {{schema}} once, as in {USUAL!r}"
            )

    @property
    def transactions(self) -> str:
        return f"{self.name}.{TRANSACTIONS}"

    def topic(self, table: Table) -> str:
        """The topic of a table. BadName if its name would be too long."""
        schema, name = table
        return check_name(self.template.format(name=self.name, schema=escaped(schema), table=escaped(name)))

    def table(self, topic: str) -> Table | None:
        """The table of a topic; None if it is none of these. The schema is empty where the topics do not tell it."""
        parts = {"name": re.escape(self.name), "schema": f"(?P<schema>{_ESCAPED})", "table": f"(?P<table>{_ESCAPED})"}
        pattern = "".join(parts.get(part[1:-1], re.escape(part)) for part in re.split(r"(\{\w+\})", self.template))
        found = re.fullmatch(pattern, topic)
        if not found:
            return None
        try:
            return unescaped(found["schema"]) if "schema" in found.groupdict() else "", unescaped(found["table"])
        except BadName:
            return None

    def topics(self, tables: Iterable[Table], taken: Collection[str] = ()) -> Mapping[Table, str]:
        """The topic of each table. BadName if two of them, or one of them and a topic that is taken, are called the same or differ
        in upper and lower case only, as not every disk tells those apart."""
        found = {table: self.topic(table) for table in tables}
        seen = {topic.casefold(): f"topic {topic}" for topic in (*taken, self.transactions)}
        for (schema, table), topic in found.items():
            mine = f"topic {topic}, of table {schema}.{table}"
            other = seen.setdefault(topic.casefold(), mine)
            if other is not mine:
                what = "topics would be called the same, or differ in upper and lower case only"
                raise BadName(what, other, mine, hint=f"name topics by another template, for instance {USUAL!r}")
        return found
