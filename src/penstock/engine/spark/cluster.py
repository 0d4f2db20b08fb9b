"""What Spark is told where the work leaves this machine: who may talk to whom, and how it is kept from others.

Spark runs whatever code it is sent, so its connections are authenticated and encrypted, on one machine too. YARN, Kubernetes and
a run on this machine alone get a secret for each run, which Spark makes. A standalone cluster has one secret for its master, its
workers and its drivers; whoever starts it chooses it.
"""

import ipaddress
import socket
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import BadInput, EngineError

SECRET, SECRET_FILE, AUTHENTICATE = "spark.authenticate.secret", "spark.authenticate.secret.file", "spark.authenticate"
_SAFE = {AUTHENTICATE: "true", "spark.network.crypto.enabled": "true"}
_PATIENCE = 5.0  # seconds for a master to take a connection


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def masters(master: str) -> list[tuple[str, int]]:
    """The addresses in spark://host:port,host:port; none of another kind of master."""
    listed = master.removeprefix("spark://").split(",") if master.startswith("spark://") else []
    parts = [part.rpartition(":") for part in listed]
    if any(not host or not port.isdigit() for host, _, port in parts):
        raise BadInput(f"{master!r} names no Spark master", hint="spark://host:7077, or several: spark://a:7077,b:7077")
    return [(host.strip("[]"), int(port)) for host, _, port in parts]


def on_this_machine(master: str) -> bool:
    """Whether every address of the master is one that only this machine reaches."""
    return is_local(master) or (bool(masters(master)) and all(_loopback(host) for host, _ in masters(master)))


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def protection(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """Settings that authenticate and encrypt what driver and executors say to each other. Without a secret a standalone cluster
    is refused, unless it is on this machine or the user says that it shall be so."""
    if AUTHENTICATE in given and given[AUTHENTICATE] != "true":
        return {}
    # Also without executors the driver listens, and on loopback every user of the machine can reach it (G28). Spark makes the
    # secret itself, a new one each time, and keeps it in the JVM.
    if not masters(master) or SECRET in given:
        return dict(_SAFE)
    if on_this_machine(master) and AUTHENTICATE not in given:
        return {}
    raise BadInput(
        f"{master} is not on this machine, and there is no secret to talk to it",
        "whoever reaches an unprotected Spark cluster can run code on it",
        hint=f"--conf {SECRET_FILE}=FILE, the secret that its master and workers have (docs/scale.md); "
        f"or, in a network that is closed to others, --conf {AUTHENTICATE}=false",
    )


def with_secret(given: Mapping[str, str]) -> dict[str, str]:
    """The settings with the secret that a file holds in place of the file's name, which Spark itself reads on Kubernetes alone."""
    path = given.get(SECRET_FILE)
    if path is None or SECRET in given:
        return dict(given)
    try:
        secret = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the secret of the cluster cannot be read from {path}", str(error)) from error
    if not secret:
        raise BadInput(f"the file {path} holds no secret")
    return {name: value for name, value in given.items() if name != SECRET_FILE} | {SECRET: secret}


def answering(master: str) -> None:
    """EngineError where no standalone master takes connections: Spark itself tries for a minute, and then says something else."""
    tried = []
    for host, port in masters(master):
        try:
            socket.create_connection((host, port), timeout=_PATIENCE).close()
            return
        except OSError as error:
            tried.append(f"{host}:{port}: {error.strerror or error}")
    if tried:
        raise EngineError(f"no Spark master answers at {master}", *tried, hint="is it running, and is this its address?")
