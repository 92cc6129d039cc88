#!/usr/bin/env bash
# Runs every fuzz target for $SECONDS_EACH seconds.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

[ -d tests/fuzz ] || fail "tests/fuzz is not part of this version"
cargo fuzz --version >/dev/null 2>&1 || fail "cargo-fuzz is missing" "cargo install cargo-fuzz"
for target in $(cargo fuzz list --fuzz-dir tests/fuzz); do
    say "== $target"
    cargo +nightly fuzz run --fuzz-dir tests/fuzz "$target" -- -max_total_time="${FUZZ_SECONDS:-60}"
done
