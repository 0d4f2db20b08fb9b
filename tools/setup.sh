#!/bin/sh
# Makes .venv from the committed lock: exact versions, checked by hash. Needs Python 3.11 or later and nothing else.
set -eu
cd "$(dirname "$0")/.."

usable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-} python3.13 python3.12 python3.11 python3; do
        if usable "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "error: Penstock needs Python 3.11 or later with its venv module, and none was found" >&2
    echo "  hint: Debian/Ubuntu: apt-get install python3 python3-venv; macOS: brew install python@3.12; or make PYTHON=/path/to/python3" >&2
    exit 1
}

if ! usable .venv/bin/python; then
    python=$(find_python)
    echo "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi
if command -v uv >/dev/null 2>&1; then
    uv pip install --quiet --compile-bytecode --python .venv/bin/python --require-hashes -r requirements.lock
    uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation -e .
else
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
fi
touch .venv/.locked
