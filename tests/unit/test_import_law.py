"""The rooms and who may import whom; and calls that nothing here may make."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "penstock"

# A room may import itself, errors, and these.
MAY = {
    "errors": set[str](),
    "core": set[str](),
    "storage": {"core"},
    "log": {"core", "storage"},
    "queue": {"core", "storage", "log"},
    "capture": {"core", "storage", "log"},
    "events": {"core", "storage", "log"},
    "sinks": {"core", "storage", "log", "plan"},
    "views": {"core", "storage", "log", "plan", "sinks"},
    "plan": {"core"},
    "kernels": {"core", "plan"},
    "lookups": {"core", "plan", "sinks"},
    "flow": {"core", "plan", "kernels", "sinks", "lookups"},
    "engine": {"core", "storage", "log", "capture", "sinks", "views", "plan", "kernels", "flow"},
}
EVERYTHING = {*MAY, "testing", "demo", "cli", "door"}
MAY |= {"testing": EVERYTHING - {"cli", "demo"}, "cli": EVERYTHING, "demo": EVERYTHING}
# The door shows names of the rooms; the engine and the test driver it reaches inside its methods only.
DOOR = {"core", "plan", "flow", "lookups", "log", "queue", "events", "kernels", "sinks", "views", "storage", "errors"}
DOOR_LATER = {*DOOR, "engine", "testing"}

THIRD_PARTY = {"core": {"pyarrow", "numpy"}}
SPARK = {"pyspark", "py4j"}

FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_IMPORTS = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "yaml"}
# Reviewed: (file, what) -> why it is no danger.
REVIEWED = {
    ("engine/execute/job.py", "pickle"): "the program of a job, on its way to its tasks inside Spark; never stored",
    ("engine/execute/shuffle.py", "pickle"): "between the tasks of one job, inside Spark; never stored",
    ("engine/execute/spark_tasks.py", "pickle"): "from the tasks of one job to the driver, inside Spark; never stored",
    ("engine/execute/resident/residents.py", "pickle"): "jobs to, and results from, a task of this run that knows its secret",
    ("engine/execute/resident/worker.py", "pickle"): "jobs from, and results to, the driver, which has proved its secret first",
    ("engine/execute/job.py", "cloudpickle"): "the user's own functions on their way to the tasks of one job; never stored",
}


@cache
def tree_of(path: Path) -> ast.AST:
    return ast.parse(path.read_text())


def files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return "door" if first == "__init__.py" else first.removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[tuple[str, bool, int]]:
    """Every imported module, whether it is imported as the file is loaded, and the line. Imports for type checkers are left out."""
    inside = {id(node) for body in _bodies(tree) for node in ast.walk(body)}
    unseen = {id(node) for block in _type_checking(tree) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in unseen:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) not in inside, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            names = [f"{node.module}.{a.name}" for a in node.names] if node.module == "penstock" else [node.module or ""]
            yield from ((name, id(node) not in inside, node.lineno) for name in names)


def _bodies(tree: ast.AST) -> Iterator[ast.AST]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


def _type_checking(tree: ast.AST) -> Iterator[ast.AST]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))


def breaches(path: Path, tree: ast.AST) -> Iterator[str]:
    room = room_of(path)
    for module, at_load, line in imports(tree):
        top = module.split(".")[0]
        where = f"{name_of(path)}:{line}: {module}"
        if top == "penstock":
            target = room_named(module)
            if target not in allowed(room, at_load) and target not in ("errors", room):
                yield f"{where}: {room} must not import {target}{' when it is loaded' if room == 'door' else ''}"
        elif top in SPARK and room != "engine":
            yield f"{where}: only engine imports Spark"
        elif room in THIRD_PARTY and top not in THIRD_PARTY[room] and top not in sys.stdlib_module_names:
            yield f"{where}: {room} imports no third party but {sorted(THIRD_PARTY[room])}"


def room_named(module: str) -> str:
    """The room of an imported module; a name that is no room is one that the door shows."""
    name = module.split(".")[1] if "." in module else "door"
    return name if name in EVERYTHING else "door"


def allowed(room: str, at_load: bool) -> set[str]:
    if room == "door":
        return DOOR if at_load else DOOR_LATER
    return MAY[room]


def dangers(path: Path, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        found = _danger(node)
        if found and (name_of(path), found) not in REVIEWED:
            yield f"{name_of(path)}:{getattr(node, 'lineno', 0)}: {found}"


def _danger(node: ast.AST) -> str | None:
    if isinstance(node, ast.Import):
        return next((a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_IMPORTS), None)
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_IMPORTS:
        return node.module
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
        return node.func.id
    if any(k.arg == "shell" and not (isinstance(k.value, ast.Constant) and k.value.value is False) for k in node.keywords):
        return "shell="
    text = ast.unparse(node.func)
    return text if text in ("os.system", "os.popen", "subprocess.getoutput", "np.load", "numpy.load") else None


@pytest.mark.parametrize("path", files(), ids=name_of)
def test_every_import_is_one_that_the_rooms_allow(path: Path) -> None:
    assert list(breaches(path, tree_of(path))) == []


@pytest.mark.parametrize("path", files(), ids=name_of)
def test_nothing_runs_code_from_data_or_a_shell(path: Path) -> None:
    assert list(dangers(path, tree_of(path))) == []


def test_every_room_has_its_rule_and_says_in_one_sentence_what_it_is() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == set(MAY) - {"errors"}
    for room in rooms:
        assert ast.get_docstring(ast.parse((SOURCE / room / "__init__.py").read_text())), room


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("core/x.py", "import penstock.log"),
        ("core/x.py", "import polars"),
        ("kernels/x.py", "from penstock.storage.port import Storage"),
        ("flow/x.py", "def f():\n    from penstock.engine.spark import session"),
        ("log/x.py", "from penstock import views"),
        ("sinks/x.py", "import pyspark.sql"),
        ("testing/x.py", "from penstock.cli.main import run"),
        ("__init__.py", "from penstock.engine.spark.session import start_session"),
        ("views/x.py", "import penstock"),
        ("kernels/x.py", "from penstock import Flow"),
    ],
)
def test_the_law_notices(file: str, line: str) -> None:
    assert list(breaches(SOURCE / file, ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from cloudpickle import loads",
        "eval(x)",
        "exec(x)",
        "subprocess.run(x, shell=True)",
        "os.system(x)",
        "np.load(f)",
    ],
)
def test_the_danger_check_notices(line: str) -> None:
    assert list(dangers(SOURCE / "log" / "x.py", ast.parse(line)))


def test_every_reviewed_exception_is_still_needed() -> None:
    reviewed = {SOURCE / file for file, _ in REVIEWED}
    found = {(name_of(path), _danger(node)) for path in reviewed for node in ast.walk(tree_of(path))}
    assert set(REVIEWED) <= found


def test_the_door_may_reach_the_engine_inside_a_method() -> None:
    assert not list(breaches(SOURCE / "__init__.py", ast.parse("def run():\n    from penstock.engine.run import loop")))


def declared(lines: list[str]) -> set[str]:
    """As they are imported: in small letters, with _ for -."""
    return {re.split(r"[^\w-]", line)[0].replace("-", "_").lower() for line in lines}


def test_every_third_party_import_is_a_declared_dependency() -> None:
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]
    always = declared(project["dependencies"]) | {"penstock", "py4j"}  # py4j is part of PySpark
    later = set[str]().union(*(declared(lines) for extra, lines in project["optional-dependencies"].items() if extra != "dev"))
    later |= {"jpype"}  # comes with pydbzengine
    only_in_tests = {"pytest"}
    for path in files():
        known = always | (only_in_tests if room_of(path) == "testing" else set()) | sys.stdlib_module_names
        for module, early, line in imports(tree_of(path)):
            allowed = known if early else known | later  # what an extra brings is loaded where it is used
            assert module.split(".")[0] in allowed, f"{name_of(path)}:{line}"


def test_no_room_but_the_engine_loads_spark() -> None:
    rooms = ["core.schema", "storage.port", "log.port", "kernels.port", "flow.graph", "sinks.port", "cli.main", "errors"]
    call = (
        "import sys\n"
        + "".join(f"import penstock.{room}\n" for room in rooms)
        + "print(sorted({'pyspark', 'py4j'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True).stdout == "[]\n"
