"""What the options of penstock queue create and send say."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.cli.queue.send import Order
from penstock.cli.topic.care import size_of
from penstock.errors import BadInput
from penstock.queue.options import MessageOptions, QueueOptions
from penstock.queue.port import Binding, Limit

_SAID = ("id", "key", "route", "priority", "delay", "ttl")
_FROM = ("id", "key", "route")


def wishes(options: Mapping[str, Any]) -> QueueOptions:
    """The settings of a queue; what was not given is left out."""
    plain = ("source", "lease", "tries", "retry", "ordered", "dead", "start")
    found: dict[str, Any] = {word: options[word] for word in plain if options[word] is not None}
    headers = headers_of(options["headers"])
    if options["any_header"] and not headers:
        raise BadInput("--any-header needs headers", hint="--header NAME=VALUE, as often as needed")
    if options["routes"] or headers:
        found["bindings"] = [Binding(route, headers, options["any_header"]) for route in options["routes"] or ("#",)]
    most, size = options["max_messages"], options["max_bytes"]
    found["limit"] = Limit(options["policy"], most, None if size is None else size_of(size, "--max-bytes"))
    wanted: QueueOptions = found  # type: ignore[assignment]
    return wanted


def order(options: Mapping[str, Any]) -> Order:
    """How messages are sent."""
    said: dict[str, Any] = {word: options[word] for word in _SAID if options[word] is not None}
    if options["headers"]:
        said["headers"] = headers_of(options["headers"])
    fields = {word: options[f"{word}_field"] for word in _FROM if options[f"{word}_field"]}
    if fields and options["form"] == "raw":
        raise BadInput("raw lines have no fields", hint="leave --format raw out, or the --…-field options")
    given: MessageOptions = said  # type: ignore[assignment]
    return Order(given, fields, options["form"] == "raw", options["on_error"] == "stop", options["wait"])


def headers_of(given: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadInput(f"{text!r} is no header", hint="write it like --header kind=order")
        found[name] = value.encode()
    return found
