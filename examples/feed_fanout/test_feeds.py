"""Every subscriber gets all of it, whatever the others do."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Queue
from penstock.log.open import open_log

HERE = Path(__file__).parent
EXAMPLE = runpy.run_path(str(HERE / "feeds.py"))


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))


def test_every_feed_gets_every_post_once_and_a_post_is_stored_once() -> None:
    feeds = EXAMPLE["feeds"]()
    posts = [(f"posts.news.{n % 7}", f"post {n}") for n in range(500)]
    EXAMPLE["publish"](posts)
    for name in ("ann", "bob", "cid"):
        shown = [text for _ in range(5) for text in EXAMPLE["read"](feeds[name])]
        assert shown == [text for _, text in posts]
        assert EXAMPLE["read"](feeds[name]) == []
    assert EXAMPLE["read"](feeds["radio"]) == []
    assert sum(end.next for end in open_log().topic("posts").ends().values()) == 500


def test_what_one_follower_does_is_nothing_to_the_others() -> None:
    feeds = EXAMPLE["feeds"]()
    EXAMPLE["publish"](EXAMPLE["POSTS"])
    with feeds["ann"].consumer() as ann:
        for message in ann.receive(10):
            message.reject("no interest")
    assert EXAMPLE["read"](feeds["bob"]) == [text for _, text in EXAMPLE["POSTS"]]
    assert feeds["ann"].dead_letters.redrive().moved == 3
    assert EXAMPLE["read"](feeds["ann"]) == [text for _, text in EXAMPLE["POSTS"]]
    assert EXAMPLE["read"](feeds["bob"]) == []
    assert EXAMPLE["read"](feeds["cid"]) == [text for _, text in EXAMPLE["POSTS"]]


def test_one_that_comes_later_gets_all_of_it_or_what_is_new() -> None:
    EXAMPLE["feeds"]()
    EXAMPLE["publish"](EXAMPLE["POSTS"])
    archive = Queue.create("feed-archive", source="posts")
    late = Queue.create("feed-late", source="posts", start="latest")
    EXAMPLE["publish"]([("posts.news.dora", "the sun is out")])
    assert EXAMPLE["read"](archive) == [*(text for _, text in EXAMPLE["POSTS"]), "the sun is out"]
    assert EXAMPLE["read"](late) == ["the sun is out"]


def test_the_readme_shows_what_is_printed() -> None:
    done = subprocess.run([sys.executable, str(HERE / "feeds.py")], check=True, capture_output=True, text=True)
    assert f"$ python feeds.py\n{done.stdout}" in (HERE / "README.md").read_text()
