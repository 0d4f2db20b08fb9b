"""A home is for its owner alone, and says so when it is not."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Flow, Producer, TopicSpec, open_log
from penstock.errors import NotFound
from penstock.log.groups.port import Source
from penstock.storage.home import make_private, open_to_others


@pytest.fixture(autouse=True, params=[0o022, 0o000], ids=["usual", "open"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def test_everything_in_a_new_home_is_for_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    log = open_log(home)
    with Producer(log.create(TopicSpec("orders"))) as producer:
        producer.send(b"{}")
    groups = log.groups()
    groups.put("web", Source("orders", log.topic("orders").id, 1), {0: 1})
    paths = [home.parent, home, *home.rglob("*")]
    assert len(paths) > 5
    assert {path for path in paths if path.stat().st_mode & 0o077} == set()
    assert open_to_others(home) is None


@pytest.mark.parametrize(("mode", "what"), [(0o755, "read"), (0o750, "read"), (0o777, "change")])
def test_a_home_that_others_can_reach_says_so_and_is_left_as_it_is(mode: int, what: str, tmp_path: Path) -> None:
    make_private(tmp_path / "home")
    (tmp_path / "home").chmod(mode)
    told = open_to_others(tmp_path / "home")
    assert told == (
        f"other users of this machine can {what} home {tmp_path}/home (mode {mode:o}): chmod 700 {tmp_path}/home, unless they shall"
    )
    open_log(tmp_path / "home").create(TopicSpec("orders"))
    assert (tmp_path / "home").stat().st_mode & 0o777 == mode


def test_a_run_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o755)
    flow = Flow("shop")
    flow.stream("orders", "n long").view("all")
    with pytest.raises(NotFound):
        flow.catch_up(home=tmp_path / "home")
    assert capsys.readouterr().err.count("chmod 700") == 1
