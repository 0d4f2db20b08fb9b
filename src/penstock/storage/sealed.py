"""Files whose name carries the checksum of what is in them, so that a flipped bit is never taken for data."""

import re
import uuid
from contextlib import suppress

import pyarrow as pa
from crc32c import crc32c

from penstock.errors import Damaged, PenstockError
from penstock.storage.port import Storage

_SEAL = re.compile(r"-([0-9a-f]{8})\.[a-z.]+$")


def write_sealed(storage: Storage, stem: str, ending: str, data: pa.Buffer) -> str:
    """Writes a file, synced, under a name that no other attempt has: `<stem>-<unique>-<checksum>.<ending>`. Returns the name."""
    path = f"{stem}-{uuid.uuid4().hex[:16]}-{crc32c(data):08x}.{ending}"
    appender = storage.append(path)
    try:
        appender.write(data)
        appender.sync()
    except PenstockError:
        with suppress(PenstockError):  # a part of a file is of no use, and the disk may be full
            storage.remove(path, durable=False)
        raise
    finally:
        appender.close()
    return path


def read_sealed(storage: Storage, path: str) -> pa.Buffer:
    """The bytes of a file; Damaged if they are not those that its name was made from. A name without a checksum is not checked."""
    data, seal = storage.read(path), _SEAL.search(path)
    if seal and crc32c(data) != int(seal[1], 16):
        raise Damaged(f"{path} is damaged: its bytes are not those that were written", hint="restore the file from a copy")
    return data
