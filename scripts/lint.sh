#!/bin/sh
# usage: lint.sh BIN. Every linter runs, whatever the ones before it said; the exit status tells whether one failed.
set -u
bin=$1 status=0
say() { echo "== $*"; "$@" || status=1; }
say "$bin/ruff" check .
say "$bin/ruff" format --check .
say "$bin/mypy"
say "$bin/lint-imports"
say "$bin/icml24" check
exit $status
