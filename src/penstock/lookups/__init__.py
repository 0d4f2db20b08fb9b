"""Stores that are asked by key: what lookups take, with the connection settings of sinks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Loaded when first asked for: a flow that asks none of them does not wait for them.
_NAMES = {
    "mariadb": "penstock.lookups.sql",
    "mysql": "penstock.lookups.sql",
    "postgres": "penstock.lookups.sql",
    "redis": "penstock.lookups.redis_keys",
    "sqlite": "penstock.lookups.sql",
}

if TYPE_CHECKING:
    from penstock.lookups.redis_keys import redis
    from penstock.lookups.sql import mariadb, mysql, postgres, sqlite

__all__ = ["mariadb", "mysql", "postgres", "redis", "sqlite"]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_NAMES[name]), name)


def __dir__() -> list[str]:
    return __all__
