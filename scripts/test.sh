#!/usr/bin/env bash
# Runs every test and ends with the closing lines of each runner.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

closing=$(mktemp)
trap 'rm -f "$closing"' EXIT

# Runs a test runner and keeps the lines of its output that match a pattern for the end.
run() {
    local name=$1 pattern=$2 log status=0
    shift 2
    log=$(mktemp)
    say "== $name: $*"
    "$@" 2>&1 | tee "$log" || status=$?
    grep -E "$pattern" "$log" | tail -n 1 | sed "s/^ */$name: /" >>"$closing" || true
    rm -f "$log"
    [ "$status" = 0 ] || { cat "$closing"; fail "$name failed"; }
}

fetch_crates
features=(--locked --no-default-features --features "$FEATURES")
if command -v cargo-nextest >/dev/null; then
    run rust '^ *Summary' cargo nextest run "${features[@]}" ${CI:+--profile ci}
else
    say "cargo-nextest not found: using cargo test"
    run rust '^test result' cargo test "${features[@]}" --lib --bins --tests
fi
run documentation '^test result' cargo test "${features[@]}" --doc

scripts/setup-python.sh test
venv=$(cd "${VENV:-.venv}" && pwd)
say "== building the Python extension"
build_extension "$venv"
run python '(passed|failed|error).* in ' env PYTHONPATH=bindings/python "$venv/bin/python" -m pytest -q bindings/python/tests --ignore bindings/python/tests/compat

say "== every test passed"
cat "$closing"
