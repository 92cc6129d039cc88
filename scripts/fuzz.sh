#!/usr/bin/env bash
# Runs the fuzz targets TARGETS (all) for FUZZ_SECONDS (60) each, one after the other; the first crash ends it.
# FUZZ_SEEDS names a folder with a folder per target of files to begin with.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

cargo fuzz --version >/dev/null 2>&1 || fail "cargo-fuzz is missing" "cargo install cargo-fuzz"
rustc +nightly --version >/dev/null 2>&1 ||
    fail "fuzzing needs a nightly toolchain" "rustup toolchain install nightly --profile minimal"
[ -z "$(missing_for_turbo)" ] || fail "fuzzing builds libjpeg-turbo" "apt install$(missing_for_turbo)"

read -ra targets <<<"${TARGETS:-$(cargo fuzz list --fuzz-dir tests/fuzz | tr '\n' ' ')}"
for target in "${targets[@]}"; do
    corpus=tests/fuzz/corpus/$target
    mkdir -p "$corpus"
    folders=("$corpus")
    [ ! -d "${FUZZ_SEEDS:-/nowhere}/$target" ] || folders+=("$FUZZ_SEEDS/$target")
    say "== $target"
    cargo +nightly fuzz run --fuzz-dir tests/fuzz "$target" "${folders[@]}" -- \
        -max_total_time="${FUZZ_SECONDS:-60}" -rss_limit_mb=2048 -timeout=60
done
