"""Settings that change what expressions mean are pinned, and whoever sets one otherwise is told."""

import pytest

from penstock.engine.spark.pinned import PINNED, refuse_other_meaning
from penstock.engine.spark.session import start_context, start_session
from penstock.errors import EngineError


def other(value: str) -> str:
    return {"true": "false", "false": "true"}.get(value, "something else")


@pytest.mark.parametrize("name", PINNED)
def test_a_setting_that_changes_meaning_is_refused_in_words(name: str) -> None:
    with pytest.raises(EngineError, match=f"cannot run flows with {name}=") as refused:
        refuse_other_meaning({name: other(PINNED[name])})
    assert PINNED[name] in str(refused.value)
    refuse_other_meaning({name: PINNED[name].upper(), "spark.executor.memory": "1g"})


@pytest.mark.parametrize("start", [start_session, start_context])
def test_no_spark_is_started_for_it(start) -> None:
    with pytest.raises(EngineError, match=r"spark\.sql\.ansi\.enabled=false: it changes what expressions mean"):
        start("app", conf={"spark.sql.ansi.enabled": "false"})
