#!/usr/bin/env bash
# Runs the benches of the stages, then compares whole loaders on the same data; results go to target/bench.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

fetch_crates
results=${CARGO_TARGET_DIR:-target}/bench
mkdir -p "$results"
stages=(cargo bench --locked --no-default-features --features "$FEATURES" --benches)
started=$(date +%s)
"${stages[@]}"
"${PYTHON:-python3}" benches/stages.py "${CARGO_TARGET_DIR:-target}/criterion" \
    --since "$started" --command "${stages[*]}" --out "$results/stages.json"

scripts/setup-python.sh test
scripts/setup-python.sh bench
venv=$(cd "${VENV:-.venv}" && pwd)
build_extension "$venv" --release
if [ ! -d "$results/data" ]; then
    photos=${PHOTOS:-}
    if [ -z "$photos" ]; then
        cargo build --release --locked --quiet --no-default-features --features "$FEATURES" --bin brimful
        photos=$results/photos
        "${CARGO_TARGET_DIR:-target}/release/brimful" demo --dir "$photos" >/dev/null
    fi
    "$venv/bin/python" benches/compare/make_data.py "$photos" "$results/data"
fi
PYTHONPATH=bindings/python exec "$venv/bin/python" benches/compare/compare.py "$results/data" --out "$results/compare.json"
