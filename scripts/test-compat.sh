#!/usr/bin/env bash
# Runs the loader tests of other projects with brimful in their place: WEBDATASET and TORCH name their checkouts.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

suite=bindings/python/tests/compat/run_suite.py
[ -f "$suite" ] || fail "$suite is not part of this version"
arguments=()
[ -z "${WEBDATASET:-}" ] || arguments+=(--webdataset "$WEBDATASET")
[ -z "${TORCH:-}" ] || arguments+=(--torch "$TORCH")
[ "${#arguments[@]}" -gt 0 ] || fail "no test suite is named" "make test-compat WEBDATASET=path TORCH=path"
scripts/setup-python.sh test
exec "${VENV:-.venv}/bin/python" "$suite" "${arguments[@]}"
