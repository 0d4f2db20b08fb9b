"""Values in Avro whose schemas stand in a registry: a zero byte, four bytes of the schema's number, then Avro."""

import base64
import json
import ssl
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.errors import BadInput, LogError
from penstock.log.intake.codec import Decoded
from penstock.log.kafka.client import PerProcess
from penstock.log.kafka.secrets import secret
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.kafka.values.avro import AvroWriter, Read, avro_schema, decoded, library, read_all

_HEAD = struct.Struct(">bI")
_MAGIC = 0
_LARGEST = 4 << 20
_PATIENCE = 20.0
_TYPE = "application/vnd.schemaregistry.v1+json"


class Registry:
    """Schemas by number, each asked for once; the address is that of the settings, and no redirect leads away from it."""

    def __init__(self, settings: KafkaSettings) -> None:
        base = settings.get("registry")
        if base is None:
            raise BadInput("the codec avro+registry needs a registry", hint="say where it is: kafka://…?registry=https://…")
        self._base, self._settings = base.rstrip("/"), settings
        self._guard = threading.Lock()
        self._schemas: dict[int, Any] = {}
        handlers: list[Any] = [_NoRedirects(), urllib.request.ProxyHandler({})]
        if settings.get("registry_ca"):
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=settings.get("registry_ca"))))
        self._open = urllib.request.build_opener(*handlers).open

    def schema(self, number: int) -> Any:
        """The schema of a number; LogError if the registry cannot be asked, ValueError if it has none."""
        with self._guard:
            if number not in self._schemas:
                answer = self._ask(f"/schemas/ids/{number}", None)
                if answer.get("schemaType", "AVRO") != "AVRO":
                    raise ValueError(f"schema {number} of the registry is no Avro")
                self._schemas[number] = json.loads(answer["schema"])
            return self._schemas[number]

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """The number of a schema, which the registry gives it if it has none."""
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions", {"schema": json.dumps(schema)})
        return int(answer["id"])

    def _ask(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        headers = {"Accept": _TYPE, "Content-Type": _TYPE, **self._who()}
        data = None if body is None else json.dumps(body).encode()
        try:
            with self._open(urllib.request.Request(self._base + path, data, headers), timeout=_PATIENCE) as answer:
                found = json.loads(answer.read(_LARGEST))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise ValueError(f"the registry has nothing at {path}") from error
            raise LogError(f"the schema registry refuses {path}: {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise LogError("the schema registry cannot be asked", str(error)) from error
        if not isinstance(found, dict):
            raise LogError(f"the schema registry answers {path} with something else")
        return found

    def _who(self) -> dict[str, str]:
        user, word = self._settings.get("registry_user"), self._settings.get("registry_password")
        if user is None or word is None:
            return {}
        both = f"{user}:{secret(word, 'registry_password')}".encode()
        return {"Authorization": f"Basic {base64.b64encode(both).decode()}"}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_REGISTRIES = PerProcess()


def registry(settings: KafkaSettings) -> Registry:
    return _REGISTRIES.get(settings, lambda: Registry(settings))


class RegistryCodec:
    """Writes with the topic's newest schema, registered under `TOPIC-value`; reads whatever the registry knows."""

    def __init__(self, topic: str, on_broker: str, schemas: Sequence[Schema], settings: KafkaSettings) -> None:
        self._topic, self._subject, self._newest, self._settings = topic, f"{on_broker}-value", schemas[-1], settings
        self._avro = library()
        self._writer: AvroWriter | None = None
        self._readers: dict[bytes, Read] = {}

    def encode(self, rows: pa.RecordBatch) -> Sequence[bytes | None]:
        if self._writer is None:
            schema = avro_schema(self._newest, self._topic)
            try:
                number = registry(self._settings).register(self._subject, schema)
            except ValueError as error:
                raise LogError(f"the schema registry does not take the schema of topic {self._topic}", str(error)) from error
            self._writer = AvroWriter(schema, _HEAD.pack(_MAGIC, number))
        return self._writer.encode(rows)

    def decode(self, values: pa.Array, schema: Schema, gone: set[int]) -> Decoded:
        return decoded(values, schema, gone, _HEAD.size, self._reader)

    def _reader(self, head: bytes) -> Read:
        if head not in self._readers:
            if len(head) < _HEAD.size or head[0] != _MAGIC:
                raise ValueError("it does not begin with a schema's number")
            number = _HEAD.unpack(head)[1]
            try:
                parsed = self._avro.parse_schema(registry(self._settings).schema(number))
            except self._avro.schema.SchemaParseException as error:
                raise ValueError(f"schema {number} of the registry cannot be read") from error
            self._readers[head] = read_all(self._avro, parsed)
        return self._readers[head]
