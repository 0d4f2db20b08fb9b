"""URLs of databases: a password in one is refused and never repeated, and an engine is found for each."""

import pytest

from penstock.cli.cdc.url import check_url, engine_for
from penstock.errors import BadInput
from unit.cli.calling import calls_of

CANARY = "c4n4ry"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{CANARY}@db/shop",
        f"postgresql://me:{CANARY}@db:5432/shop",
        f"postgresql://me:{CANARY}/x@db/shop",
        f"postgresql://me:1/{CANARY}@db/shop",
        f"postgresql://me:{CANARY}?x@db/shop",
        f"postgresql://me:{CANARY}#x@db/shop",
        f"postgresql://me:{CANARY}@x@db/shop",
        f"postgresql://:{CANARY}@db/shop",
        f"postgresql://me@db/shop?password={CANARY}",
        f"postgresql://me@db/shop?sslpassword={CANARY}",
        f"mysql://me:{CANARY}@db/shop",
        f"host=db password={CANARY}",
        f"host=db PASSWORD = {CANARY}",
    ],
)
def test_a_password_is_refused_with_the_three_ways_and_not_repeated(url: str) -> None:
    for words in (("check", url), ("add", "shop", url, "--tables", "users")):
        answer = calls_of("--verbose", "cdc")(*words)
        assert answer.code == 2
        assert "--password-env VARIABLE, --password-file FILE, or a line in ~/.pgpass" in answer.err
        assert CANARY not in answer.out + answer.err


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me@db/shop",
        "postgresql://db:5432/shop?sslmode=require",
        "postgresql://me%40firm@db/shop",
        "postgresql://me@db:5432,other:5433/shop?target_session_attrs=read-write",
        "postgresql:///shop?host=/var/run/postgresql",
        "postgresql://me@db/shop?passfile=/home/me/.pgpass",
        "postgresql://[::1]:5432/shop",
        "sqlite:///var/lib/till.db",
        "postgresql://db:5432/shop?application_name=me@home",
    ],
)
def test_a_url_without_one_is_taken(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.parametrize("url", ["shop", "postgresql://[db", "postgresql://me@db:port/shop"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        check_url(url)


def test_an_engine_suits_its_url() -> None:
    assert engine_for("postgresql://db", None, None) == engine_for("postgres://db", None, None) == "postgres"
    assert engine_for("sqlite:///till.db", None, None) == "triggers"
    assert engine_for("mysql://db", None, None) == "debezium"
    assert engine_for("postgresql://db", "triggers", None) == "triggers"
    assert engine_for("postgresql://db", None, "1 hour") == "poll"
