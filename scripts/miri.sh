#!/usr/bin/env bash
# Runs the unit tests that need neither files nor C code under Miri, which finds undefined behaviour in unsafe code.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

cargo +nightly miri --version >/dev/null 2>&1 ||
    fail "Miri is missing" "rustup toolchain install nightly --profile minimal --component miri,rust-src"
fetch_crates
# A few cases of each property: Miri is some hundred times slower than the processor.
export PROPTEST_CASES=${PROPTEST_CASES:-4} MIRIFLAGS=${MIRIFLAGS:--Zmiri-disable-isolation}
# Left out: a property that takes thousands of walks a case; fuzzing has it too.
exec cargo +nightly miri test --locked --no-default-features --lib -- batch:: shard::tar sample::npy decode::baseline \
    --skip a_cut_at_any_point
