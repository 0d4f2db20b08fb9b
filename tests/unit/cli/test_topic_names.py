"""Names that try to leave the home: every command refuses them as wrong usage and touches nothing."""

from pathlib import Path

import pytest

from .test_topic import Call, call

__all__ = ["call"]

HOSTILE = [
    "",
    " ",
    ".",
    "..",
    "...",
    "../x",
    "../../x",
    "./x",
    "x/",
    "x/..",
    "x/../../y",
    "/x",
    "/etc/passwd",
    "//x",
    "..\\x",
    "\\\\host\\share",
    "C:\\x",
    "c:x",
    "~",
    "~/x",
    "$HOME",
    "${HOME}",
    "`id`",
    "$(id)",
    "x;id",
    "x|id",
    "x&id",
    "x\n",
    "x\ny",
    "\r",
    "\t",
    "x\x00",
    "\x00",
    "x\x00/../y",
    "\x1b[31m",
    "%2e%2e",
    "%2e%2e%2fx",
    "%00",
    ".hidden",
    "trailing.",
    "a" * 201,
    "a" * 300,
    "a" * 100_000,
    "ﾟ",
    "оrders",
    "orders\u200b",
    "\u2024\u2024/x",
    "．．／x",
    "orders\u202e",
    "é",
    "😀",
    "x*",
    "x?",
    "x:y",
    "x y",
    "'x'",
    '"x"',
]
COMMANDS = {
    "create": ["create", "{}"],
    "create with a schema": ["create", "--schema", "a int", "{}"],
    "describe": ["describe", "{}"],
    "produce": ["produce", "{}"],
    "produce raw": ["produce", "--format", "raw", "{}"],
    "consume": ["consume", "{}"],
    "mark": ["mark", "{}", "end"],
    "delete": ["delete", "--yes", "{}"],
}


def everything(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_hostile_name_is_wrong_usage_and_nothing_is_touched(call: Call, tmp_path: Path, command: str) -> None:
    (tmp_path / "x").write_text("keep me")
    call("produce", "orders", given="{}")
    before = everything(tmp_path)
    for name in HOSTILE:
        answer = call(*(name if word == "{}" else word for word in COMMANDS[command]), given="{}\n")
        assert answer.code == 2, (name, answer)
        assert "\x1b" not in answer.err
        assert len(answer.err) < 1000
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", ["CON", "nul", "a..b", "x.json", "-", "__x", "a" * 200])
def test_an_odd_but_allowed_name_stays_inside_the_home(call: Call, tmp_path: Path, name: str) -> None:
    answer = call("produce", "--", name, given="{}")
    assert answer.code == 0, answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert call("consume", "--", name).rows == [{}]
    assert call("delete", "--yes", "--", name).code == 0


def test_two_names_that_differ_in_case_alone_never_share_their_rows(call: Call) -> None:
    call("produce", "orders", given="{}")
    answer = call("produce", "Orders", given="{}")
    assert answer.code != 0 or len(call("consume", "orders").rows) == 1
