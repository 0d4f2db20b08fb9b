"""The name of a prepared transaction: whose it is, and which epoch it brings."""

from dataclasses import dataclass
from hashlib import sha256
from uuid import uuid4

from penstock.sinks.port import Marker

PREFIX = "penstock:"
_LONGEST = 52  # of the name of a flow or a sink: a server takes 199 bytes in all


@dataclass(frozen=True, order=True)
class Attempt:
    """One try to bring all databases to an epoch. token: a driver may try an epoch again, and what somebody has found out about the
    first try must not be done to the second."""

    incarnation: str
    generation: int
    epoch: int
    token: str

    @classmethod
    def new(cls, marker: Marker) -> "Attempt":
        return cls(marker.incarnation, marker.generation, marker.epoch, uuid4().hex[:8])


@dataclass(frozen=True)
class Gid:
    """penstock:FLOW:SINK:INCARNATION:GENERATION:EPOCH:TOKEN:WHERE. Long names stand there by their beginning and a digest. where: a
    digest of database and table, since a server has one list of names for all of its databases."""

    flow: str
    sink: str
    attempt: Attempt
    where: str

    @classmethod
    def of(cls, flow: str, sink: str, attempt: Attempt, where: str) -> "Gid":
        return cls(short(flow), short(sink), attempt, where)

    @classmethod
    def parsed(cls, text: str) -> "Gid | None":
        """None: it is none of Penstock's."""
        match text.split(":"):
            case ["penstock", flow, sink, incarnation, generation, epoch, token, where] if (generation + epoch).isdigit():
                return cls(flow, sink, Attempt(incarnation, int(generation), int(epoch), token), where)
        return None

    def __str__(self) -> str:
        tried = self.attempt
        life = f"{tried.incarnation}:{tried.generation}:{tried.epoch}:{tried.token}"
        return f"{PREFIX}{self.flow}:{self.sink}:{life}:{self.where}"


def short(name: str) -> str:
    """The name of a flow or a sink as gids have it. No name has a ~, so different ones stay different."""
    return name if len(name) <= _LONGEST else f"{name[:36]}~{digest(name, 15)}"


def digest(text: str, letters: int) -> str:
    return sha256(text.encode()).hexdigest()[:letters]
