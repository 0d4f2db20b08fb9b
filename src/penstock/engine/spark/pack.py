"""What executors need to run flows, as one file to send them: penstock itself, or a whole environment.

    penstock-0.1.0.zip                      penstock and the user's own modules; executors have Python and the libraries
    penstock-0.1.0-py311-linux-x86_64.tar.gz  an environment: Python, the libraries, penstock; executors have Java alone

The same input gives the same bytes. `penstock-pack.json` in it says what it holds.
"""

import hashlib
import json
import os
import platform
import py_compile
import re
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path

from penstock.engine.spark.packing import Entry, Progress, files_below, ordered, write_tar, write_zip
from penstock.errors import BadInput, EngineError, NotFound

VERSION = version("penstock")
MANIFEST = "penstock-pack.json"
CODE, ENVIRONMENT = "code", "environment"
PYTHON = "bin/python"  # of an environment, from where it was unpacked
_HERE = Path(__file__).parents[2]
# Workers bring Spark; nobody types commands on them.
_LEFT = {"pyspark", "py4j", "click", "rich", "psutil"}
_IF_THERE = ("confluent-kafka", "fastavro")  # what an extra brings
# What the standard library has for people and for building other things; what libraries have for their own tests and compilers.
_NOT_FOR_TASKS = {
    "test/",
    "tests/",
    "idlelib/",
    "tkinter/",
    "turtledemo/",
    "ensurepip/",
    "lib2to3/",
    "site-packages/",
    "dist-packages/",
}
_FOR_COMPILERS = (".a", ".h", ".hpp", ".pxd", ".pyx", ".lib")
_START = """\
#!/bin/sh
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd -P)
PYTHONHOME=$root PYTHONNOUSERSITE=1 PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$root/packages"
LD_LIBRARY_PATH="$root/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export PYTHONHOME PYTHONNOUSERSITE PYTHONPATH LD_LIBRARY_PATH
exec "$root/bin/{python}" "$@"
"""


def nothing_to_say(done: int, total: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Manifest:
    """What a pack holds."""

    kind: str
    penstock: str  # version
    digest: str  # of penstock's own files
    python: str  # 3.11
    platform: str  # linux-x86_64; "any" without compiled files
    libraries: dict[str, str] = field(default_factory=dict)
    included: list[str] = field(default_factory=list)

    def encode(self) -> bytes:
        return json.dumps(asdict(self), indent=2, sort_keys=True).encode() + b"\n"

    def check(self, path: Path) -> None:
        """Refuses a pack that does not belong to this very penstock and Python: what the driver sends would not be understood."""
        for what, packed, here in (
            ("penstock", self.penstock, VERSION),
            ("Python", self.python, python_version()),
            ("penstock's files", self.digest, own_digest()),
        ):
            if packed != here:
                raise EngineError(
                    f"the pack {path} does not belong to this installation",
                    f"{what}: {packed[:12]} in the pack, {here[:12]} here",
                    hint="pack again with this installation: penstock pack" + (" --archive" if self.kind == ENVIRONMENT else ""),
                )


def python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def default_name(kind: str) -> str:
    if kind == CODE:
        return f"penstock-{VERSION}.zip"
    return f"penstock-{VERSION}-py{python_version().replace('.', '')}-{_platform()}.tar.gz"


def _platform() -> str:
    return f"{platform.system().lower()}-{platform.machine()}"


def pack_code(path: Path, include: Sequence[Path] = (), on_progress: Progress = nothing_to_say) -> Manifest:
    """Writes penstock and the included modules as a zip that Python imports from."""
    included = _included(include)  # what cannot be packed is said at once
    manifest = Manifest(CODE, VERSION, own_digest(), python_version(), "any", {}, [p.name for p in include])
    own = _own()
    entries = [*own, *_compiled(own), *included]
    write_zip(path, ordered([*entries, Entry(MANIFEST, manifest.encode())], MANIFEST), on_progress)
    return manifest


def pack_environment(
    path: Path, include: Sequence[Path] = (), libraries: Sequence[str] = (), on_progress: Progress = nothing_to_say
) -> Manifest:
    """Writes Python, penstock, the libraries that it and the user's functions need, and the included modules as a tar.gz."""
    if sys.platform != "linux":
        raise EngineError(f"an environment cannot be packed on {sys.platform}", hint="pack on the system that the workers have")
    return write_environment(path, needed(["penstock", *libraries], _IF_THERE), include, on_progress)


def write_environment(
    path: Path, installed: Mapping[str, Distribution], include: Sequence[Path] = (), on_progress: Progress = nothing_to_say
) -> Manifest:
    """An environment with Python, penstock and these libraries."""
    included = _included(include)
    wanted = {name: found for name, found in installed.items() if name != "penstock"}
    versions = {name: found.version for name, found in sorted(wanted.items())}
    manifest = Manifest(ENVIRONMENT, VERSION, own_digest(), python_version(), _platform(), versions, [p.name for p in include])
    inside = [*(e for found in wanted.values() for e in library_files(found)), *_own(), *included]
    packages = [Entry(f"packages/{e.name}", e.source, e.executable) for e in inside]
    write_tar(path, ordered([*_interpreter(), *packages, Entry(MANIFEST, manifest.encode())], MANIFEST), on_progress)
    return manifest


def read_manifest(path: Path) -> Manifest:
    """What a pack says of itself. NotFound, or BadInput if it is no pack."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as packed:
                text = packed.read(MANIFEST)
        else:
            with tarfile.open(path) as unpacked:
                first = unpacked.next()
                found = unpacked.extractfile(first) if first and first.name == MANIFEST else None
                text = found.read() if found else b""
        return Manifest(**json.loads(text))
    except FileNotFoundError:
        raise NotFound(f"there is no pack {path}", hint="make one: penstock pack") from None
    except (KeyError, OSError, ValueError, TypeError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise BadInput(f"{path} is not what `penstock pack` makes", str(error)) from error


def own_digest() -> str:
    """Changes with every byte of penstock's own files."""
    digest = hashlib.sha256()
    for entry in sorted(_own(), key=lambda e: e.name):
        digest.update(f"{entry.name}\0{entry.size}\0".encode())
        digest.update(entry.content())
    return digest.hexdigest()


def _own() -> list[Entry]:
    """Penstock as it runs here, however it was installed, and its metadata."""
    info = f"penstock-{VERSION}.dist-info/METADATA"
    text = f"Metadata-Version: 2.1\nName: penstock\nVersion: {VERSION}\n"
    return [*files_below(_HERE, "penstock"), Entry(info, text.encode())]


def _compiled(entries: Iterable[Entry]) -> Iterable[Entry]:
    """Compiled once here, not by every Python process: nothing is kept of what is imported from a zip."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    with tempfile.TemporaryDirectory() as scratch:
        made = f"{scratch}/made.pyc"
        for entry in entries:
            if entry.name.endswith(".py"):
                py_compile.compile(str(entry.source), made, entry.name, doraise=True, invalidation_mode=mode)
                yield Entry(f"{entry.name}c", Path(made).read_bytes())


def _included(paths: Iterable[Path]) -> list[Entry]:
    entries = []
    for path in paths:
        if path.name in ("penstock", "penstock.py"):
            raise BadInput(f"{path} would stand in the place of penstock itself", hint="give it another name")
        if path.is_file() and path.suffix == ".py":
            entries.append(Entry(path.name, path))
        elif (path / "__init__.py").is_file():
            entries += files_below(path, path.resolve().name)
        else:
            what = "is not there" if not path.exists() else "is no Python file and no package (a directory with __init__.py)"
            raise BadInput(f"{path} cannot be packed: it {what}")
    return entries


def needed(names: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Distribution]:
    """Installed libraries and all that they need; the optional ones where they are installed."""
    found: dict[str, Distribution] = {}
    todo = [*((name, False) for name in optional), *((name, True) for name in names)]
    while todo:
        name, must = todo.pop()
        if (key := _key(name)) in found or key in _LEFT:
            continue
        try:
            found[key] = distribution(name)
        except PackageNotFoundError:
            if must:
                raise NotFound(f"the library {name} is not installed here", hint=f"pip install {name}") from None
            continue
        todo += [(needed, False) for needed in _requirements(found[key])]
    return found


def _requirements(of: Distribution) -> Iterable[str]:
    """Names of what it requires. A requirement for another system is not installed here, so it falls away by itself."""
    for line in of.requires or ():
        name = re.match(r"[\w.-]+", line)
        if name and not re.search(r"\bextra\s*==", line):
            yield name[0]


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def library_files(found: Distribution) -> list[Entry]:
    """What of a library is packed: its own files, without those for tests and compilers."""
    name = found.metadata["Name"]
    if found.files is None:
        raise EngineError(f"the library {name} cannot be packed: it does not say which files are its own", hint=_REINSTALL)
    if "editable" in (found.read_text("direct_url.json") or ""):
        raise EngineError(f"the library {name} cannot be packed: it is installed in editable mode", hint=_REINSTALL)
    entries = []
    for file in found.files:
        if ".." in file.parts or "__pycache__" in file.parts or file.suffix in (".pyc", ".pth", *_FOR_COMPILERS):
            continue
        if "tests" in file.parts or "include" in file.parts:
            continue
        path = Path(str(found.locate_file(file)))
        if not path.is_file():
            raise EngineError(f"the library {name} cannot be packed: its file {file} is missing", hint=_REINSTALL)
        entries.append(Entry(file.as_posix(), path, os.access(path, os.X_OK)))
    return entries


_REINSTALL = "install it anew from a wheel (pip install --force-reinstall), or leave the library to the workers and send code alone"


def _interpreter() -> list[Entry]:
    """This Python without what was installed into it: where it is unpacked it finds its own library beside it."""
    name = f"python{python_version()}"
    entries = [
        Entry(PYTHON, _START.format(python=name).encode(), True),
        Entry(f"bin/{name}", Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable))), True),
    ]
    for place in dict.fromkeys(_base(kind) for kind in ("stdlib", "platstdlib")):
        entries += files_below(place, f"lib/{name}", _not_for_tasks)
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        library = str(sysconfig.get_config_var("INSTSONAME"))
        entries.append(Entry(f"lib/{library}", Path(str(sysconfig.get_config_var("LIBDIR"))) / library))
    return entries


def _base(kind: str) -> Path:
    return Path(sysconfig.get_path(kind, vars={"base": sys.base_prefix, "platbase": sys.base_exec_prefix})).resolve()


def _not_for_tasks(name: str) -> bool:
    return name in _NOT_FOR_TASKS or name.startswith("config-") or name.endswith(_FOR_COMPILERS)
