"""Connections to PostgreSQL where its client is not installed."""

import sys

import pytest

from penstock.capture.postgres.connecting import connect
from penstock.capture.postgres.stream.replication import Replication
from penstock.errors import CaptureError


def test_without_the_client_everything_loads_and_the_first_connection_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(CaptureError, match="client is not installed") as error:
        connect("postgresql://127.0.0.1/shop")
    assert "psycopg[binary]" in str(error.value)
    with pytest.raises(CaptureError, match="client is not installed"):
        Replication("postgresql://127.0.0.1/shop", "slot", ["publication"])
