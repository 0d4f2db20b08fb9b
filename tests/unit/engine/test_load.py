"""Flows from files: everything that a file binds, and one paragraph for everything that is wrong with it."""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

from penstock.cli.flow.load import load_file, load_flows
from penstock.errors import BadFlow, NotFound, PenstockError

FLOW = 'from penstock import Flow\n{name} = Flow("{name}")\n{name}.stream("orders", "a long").view("v-{name}")\n'


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Loading a file changes what this process can import; another test must not see it."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(directory: Path, name: str, text: str) -> str:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text)
    return str(directory / name)


def test_every_flow_that_a_file_binds_is_loaded_once_and_in_order(tmp_path: Path) -> None:
    file = write(tmp_path, "both.py", FLOW.format(name="b") + FLOW.format(name="a") + "again = b\n")
    other = write(tmp_path, "other.py", FLOW.format(name="c"))
    assert [flow.name for flow in load_flows([file, other])] == ["b", "a", "c"]


WRONG = {
    "no flow": ("x = 1\n", "defines no flow"),
    "no Python": ("def (:\n", r"wrong.py:1 is not Python"),
    "no such module": ("\nimport no_such_module\n", r"wrong.py:2 failed: ModuleNotFoundError\n  No module named 'no_such_module'"),
    "an error": ("x = 1\ny = x / 0\n", r"wrong.py:2 failed: ZeroDivisionError"),
    "a wrong flow": ('from penstock import Flow\nFlow("../x")\n', "cannot name a flow"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_with_a_file_is_said_with_its_line(wrong: str, tmp_path: Path) -> None:
    text, said = WRONG[wrong]
    with pytest.raises(PenstockError, match=said):
        load_flows([write(tmp_path, "wrong.py", text)])


@pytest.mark.parametrize("name", ["missing.py", "x" * 5000, "a\0b", "."])
def test_a_file_that_is_not_there_is_not_found(name: str) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        load_flows([name])


def test_a_file_that_is_no_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="is not a Python file"):
        load_flows([write(tmp_path, "flow.txt", "")])


def test_two_flows_of_one_name_are_refused(tmp_path: Path) -> None:
    files = [write(tmp_path, name, FLOW.format(name="shop")) for name in ("one.py", "two.py")]
    with pytest.raises(BadFlow, match="two flows are called 'shop'"):
        load_flows(files)


@pytest.mark.parametrize(("write_to", "said"), [('view("v")', "view 'v'"), ('to("v")', "topic 'v'")])
def test_one_output_of_two_flows_is_refused(write_to: str, said: str, tmp_path: Path) -> None:
    lines = [f'{name} = Flow("{name}"); {name}.stream("t", "k long").{write_to}' for name in ("one", "two")]
    file = write(tmp_path, "both.py", "\n".join(["from penstock import Flow", *lines]))
    with pytest.raises(BadFlow, match=f"{said} is written by two flows: one and two"):
        load_flows([file])


def test_a_file_may_be_called_like_a_module_of_python(tmp_path: Path) -> None:
    import json

    load_flows([write(tmp_path, "json.py", FLOW.format(name="shop"))])
    assert sys.modules["json"] is json


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    files = [
        write(tmp_path / name, "flow.py", FLOW.format(name=name) + f"def who():\n    return '{name}'\n") for name in ("a", "b")
    ]
    assert [flow.name for flow in load_flows(files)] == ["a", "b"]


def test_functions_of_a_file_and_of_its_neighbours_travel_without_the_files(tmp_path: Path) -> None:
    """Spark's tasks do not see the directory of the flow."""
    write(tmp_path, "neighbour_of_flow.py", "def twice(n):\n    return 2 * n\n")
    text = FLOW.format(name="shop") + "from neighbour_of_flow import twice\n\n\ndef four(n):\n    return twice(twice(n))\n"
    sent = cloudpickle.dumps(load_file(Path(write(tmp_path, "flow_with_neighbour.py", text)), "a flow")["four"])
    sys.path.remove(str(tmp_path))
    for name in ("flow_with_neighbour", "neighbour_of_flow"):
        del sys.modules[name]
    assert pickle.loads(sent)(5) == 20  # noqa: S301  made three lines above
