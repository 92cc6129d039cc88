#!/usr/bin/env bash
# Builds the Python extension and runs the demo through Python; arguments go to `brimful demo`.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

fetch_crates
scripts/setup-python.sh demo
venv=$(cd "${VENV:-.venv}" && pwd)
[ -x "${CARGO_TARGET_DIR:-target}/release/lib_native.so" ] || say "building: about four minutes the first time"
case $FEATURES in *turbo*) native=(--features turbo) ;; *) native=() ;; esac
VIRTUAL_ENV=$venv "$venv/bin/maturin" develop --release --locked --quiet --skip-install "${native[@]+"${native[@]}"}"
PYTHONPATH=bindings/python exec "$venv/bin/python" -m brimful demo "$@"
