#!/usr/bin/env bash
# Runs the tests that need an NVIDIA GPU. REQUIRE_GPU=1 makes it a failure that there is none; SANITIZER=1 runs the Rust
# ones under compute-sanitizer as well.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

fetch_crates
features=(--locked --no-default-features --features "$FEATURES")
cargo test "${features[@]}" --test device -- --nocapture
if [ -n "${SANITIZER:-}" ]; then
    binary=$(cargo test "${features[@]}" --test device --no-run --message-format=json |
        sed -n 's/.*"executable":"\([^"]*device-[^"]*\)".*/\1/p')
    compute-sanitizer --error-exitcode 1 "$binary" --nocapture
fi

scripts/setup-python.sh test
venv=$(cd "${VENV:-.venv}" && pwd)
build_extension "$venv"
PYTHONPATH=bindings/python "$venv/bin/python" -m pytest -q -rs bindings/python/tests/test_gpu.py \
    bindings/python/tests/test_autobatch_gpu.py
