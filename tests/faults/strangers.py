"""What another user of the machine can try on the sockets of a driver: the protocols, spoken without a secret.

Run as a program, `python strangers.py UID KIND WHERE`, it becomes that user first and prints what it got."""

import os
import socket
import struct
import sys

PATIENCE = 5.0
RPC_REQUEST, RPC_RESPONSE, RPC_FAILURE, CHUNK_REQUEST, CHUNK, STREAM_REQUEST, STREAM = 3, 4, 5, 0, 1, 6, 7
BLOCK = "broadcast_0_piece0"


def framed(kind: int, head: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">qb", 9 + len(head) + len(body), kind) + head + body


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def request(body: bytes) -> bytes:
    return framed(RPC_REQUEST, struct.pack(">qi", 7, len(body)), body)


def open_blocks() -> bytes:
    """Spark's block manager: give me this block."""
    return request(b"\0" + text("penstock") + text("driver") + struct.pack(">i", 1) + text(BLOCK))


def endpoint_message() -> bytes:
    """Spark's RPC: a serialized object for one of the driver's endpoints (any class of its class path would do)."""
    name = b"endpoint-verifier"
    return request(b"\0" + b"\0" + struct.pack(">H", len(name)) + name + b"\xac\xed\x00\x05t\x00\x06canary")


def file_stream() -> bytes:
    """Spark's file server, on the RPC port: give me a file that was added to the context."""
    path = "/files/shared.txt"
    return framed(STREAM_REQUEST, text(path))


def call_java() -> bytes:
    """Py4J: call a static method."""
    return b"c\nz:java.lang.System\ncurrentTimeMillis\ne\n"


def answer(address: tuple[str, int] | str, message: bytes) -> bytes:
    """The first that comes back; empty if the connection is refused, closed or ignored."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as asking:
        asking.settimeout(PATIENCE)
        try:
            asking.connect(address)
            asking.sendall(message)
            return asking.recv(1 << 16)
        except OSError as error:
            return b"" if not isinstance(error, PermissionError) else b"permission denied"


def got_in(kind: str, found: bytes) -> bool:
    if kind == "py4j":
        return found.startswith(b"!y")
    if len(found) < 9:
        return False
    what = found[8]
    return what in (RPC_RESPONSE, CHUNK, STREAM) or b"canary" in found


ATTACKS = {"blocks": open_blocks, "endpoint": endpoint_message, "files": file_stream, "py4j": call_java}


def main() -> None:
    uid, kind, where = sys.argv[1:]
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    host, _, port = where.rpartition(":")
    found = answer((host, int(port)) if host else where, ATTACKS[kind]())
    print("in" if got_in(kind, found) else "out", found[:400])


if __name__ == "__main__":
    main()
