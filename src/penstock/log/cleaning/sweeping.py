"""Files of a partition that its manifest no longer names: removed after a cleaning, or by the next one if a crash came between."""

import re

from penstock.log.file.listing import look
from penstock.log.file.place import Place

_SEGMENT = re.compile(r"\d{20}-(\d{8})\.(log|acks|senders)")
_CLEANED = re.compile(r"cleaned-(\d{8})\.(manifest|senders)")
_PART = re.compile(r"(\d{20}-\d{8}-(\d{8}))\.part")


def sweep(place: Place) -> None:
    """Call it under the lock of cleaning. What comes back after a power loss is not looked at, and removed again."""
    manifest = look(place).manifest
    named = {place.part(part.name, part.cleaning) for part in manifest.parts}
    named |= {place.manifest(manifest.number)}  # where nothing was ever cleaned, there is none
    named |= {place.cleaned_senders(manifest.senders)} if manifest.senders is not None else set()
    for file in place.storage.list(place.directory):
        path, segment = f"{place.directory}/{file}", _SEGMENT.fullmatch(file)
        replaced = segment is not None and int(segment[1]) <= manifest.through
        cleaned = (_CLEANED.fullmatch(file) or _PART.fullmatch(file)) and path not in named
        if replaced or cleaned:
            place.storage.remove(path, durable=False)
