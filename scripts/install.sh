#!/bin/sh
# usage: install.sh PYTHON VENV LOCK TORCH_INDEX
# Creates (or renews) a virtual environment with exactly the versions of a lock file. The stamp is written
# last, so that an interrupted installation is taken up again by the next call.
set -eu
python=$1 venv=$2 lock=$3 torch_index=$4

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "This book needs Python 3.11 or newer; '$python' is $("$python" --version 2>&1)." >&2
    echo "Name another one with: make book PYTHON=python3.12" >&2
    exit 1
}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "Installing $lock into $venv: about two minutes and 2.5 GB the first time"
if [ -n "$torch_index" ]; then
    "$venv/bin/python" -m pip install -q --index-url "$torch_index" "$(grep '^torch==' "$lock")"
fi
"$venv/bin/python" -m pip install -q -r "$lock"
"$venv/bin/python" -m pip install -q --no-deps -r requirements-carriers.lock
"$venv/bin/python" -m pip install -q --no-deps --no-build-isolation -e .
"$venv/bin/python" scripts/guard_cuda.py
touch "$venv/.installed"
