#!/usr/bin/env bash
# Builds the Python extension and runs the demo through Python; arguments go to `brimful demo`.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

fetch_crates
scripts/setup-python.sh demo
venv=$(cd "${VENV:-.venv}" && pwd)
build_extension "$venv" --release
PYTHONPATH=bindings/python exec "$venv/bin/python" -m brimful demo "$@"
