#!/usr/bin/env bash
# Runs the tests of decoders optimised and with every bound checked that holds by construction, on BRIMFUL_MUTANTS damaged
# files (100,000).
set -euo pipefail
. "$(dirname "$0")/machine.sh"

fetch_crates
export BRIMFUL_MUTANTS=${BRIMFUL_MUTANTS:-100000}
tests=(cargo test --locked --profile checked --no-default-features --features "$FEATURES")
"${tests[@]}" --lib -- decode:: transform::resize
"${tests[@]}" --test baseline
