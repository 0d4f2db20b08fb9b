"""What the files of users define. Whatever goes wrong in them is told in one paragraph that names the line."""

import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import ModuleType

from penstock.errors import BadFlow, BadInput, NotFound, PenstockError
from penstock.flow.graph import FlowGraph


def load_flows(files: Sequence[str]) -> list[FlowGraph]:
    """Every flow that the files define, in order; a file defines what it binds at its top level."""
    flows: list[FlowGraph] = []
    for file in files:
        found = list({id(v): v for v in load_file(Path(file), "a flow").values() if isinstance(v, FlowGraph)}.values())
        if not found:
            raise BadFlow(f"{file} defines no flow", hint='bind one at the top of the file, e.g. flow = Flow("shop")')
        flows += found
    _apart(flows)
    return flows


def _apart(flows: Sequence[FlowGraph]) -> None:
    """Flows of one run have names and outputs of their own."""
    names: set[str] = set()
    writers: dict[tuple[str, str], str] = {}
    for flow in flows:
        if flow.name in names:
            raise BadFlow(f"two flows are called {flow.name!r}", hint="a flow's name is its state: give each its own")
        names.add(flow.name)
        for out in flow.outputs:
            first = writers.setdefault((out.kind, out.name), flow.name)
            if first != flow.name:
                raise BadFlow(
                    f"{out.kind} {out.name!r} is written by two flows: {first} and {flow.name}",
                    hint="choose another name, or bring the streams together with union in one flow",
                )


def load_file(path: Path, wanted: str) -> dict[str, object]:
    """The names that a file binds; `wanted` says what should be among them. Its functions travel to Spark's tasks."""
    if not os.path.isfile(path):  # also of a path that is too long to be one
        raise NotFound(f"there is no file {path}", hint=f"give the path of a Python file that defines {wanted}")
    name = _free_name(path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    before = set(sys.modules)
    sys.modules[name] = module
    with told(path):
        spec.loader.exec_module(module)
    for new in set(sys.modules) - before:
        _travels(sys.modules[new], path.parent.resolve())
    return vars(module)


def _free_name(stem: str) -> str:
    """A name for the module that no other has: a file may be called json.py, and two files flow.py."""
    taken = {*sys.modules, *sys.stdlib_module_names}
    return stem if stem not in taken else next(n for i in count(2) if (n := f"{stem}_{i}") not in taken)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What the user's file raises, as one paragraph with its line."""
    try:
        yield
    except PenstockError:
        raise
    except SyntaxError as error:
        raise BadFlow(f"{path}:{error.lineno or 1} is not Python: {error.msg}") from error
    except Exception as error:
        where = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) in (path, path.resolve())]
        line = (str(error).strip().splitlines() or [""])[0]
        raise BadFlow(f"{path}:{where[-1] if where else 1} failed: {type(error).__name__}", line) from error


def _travels(module: ModuleType, directory: Path) -> None:
    """Functions of the flow's file, and of files beside it, go to Spark's tasks whole: those do not see this directory."""
    file = getattr(module, "__file__", None)
    if file and Path(file).resolve().parent == directory:
        from penstock.engine.execute.job import travels_whole

        travels_whole(module)
