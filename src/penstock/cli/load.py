"""Flows from the files that users write."""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from penstock.errors import BadFlow, BadInput, NotFound
from penstock.flow.graph import FlowGraph


def load_flows(files: Sequence[str]) -> list[FlowGraph]:
    """Every flow that the files define, in order; a file defines what it binds at its top level."""
    flows: list[FlowGraph] = []
    for file in files:
        found = list({id(v): v for v in _load(Path(file)).values() if isinstance(v, FlowGraph)}.values())
        if not found:
            raise BadFlow(f"{file} defines no flow", hint='bind one at the top of the file, e.g. flow = Flow("shop")')
        flows += found
    names = [f.name for f in flows]
    for name in names:
        if names.count(name) > 1:
            raise BadFlow(f"two flows are called {name!r}", hint="a flow's name is its state: give each its own")
    return flows


def _load(path: Path) -> dict[str, object]:
    if not path.is_file():
        raise NotFound(f"there is no file {path}", hint="give the path of a Python file that defines a flow")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    before = set(sys.modules)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise BadFlow(f"{path}:{error.lineno} is not Python: {error.msg}") from error
    except ImportError as error:
        raise BadFlow(f"{path} cannot be loaded: {error}") from error
    for name in {path.stem, *(set(sys.modules) - before)}:
        _travels(sys.modules[name], path.parent.resolve())
    return vars(module)


def _travels(module: ModuleType, directory: Path) -> None:
    """Functions of the flow's file, and of files beside it, go to Spark's tasks whole: those do not see this directory."""
    file = getattr(module, "__file__", None)
    if file and Path(file).resolve().parent == directory:
        from penstock.engine.placement import travels_whole

        travels_whole(module)
