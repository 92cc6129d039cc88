#!/usr/bin/env bash
# Builds the program and runs its demo; arguments go to `brimful demo`.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

fetch_crates
program=${CARGO_TARGET_DIR:-target}/release/brimful
[ -x "$program" ] || say "building: three to six minutes the first time"
cargo build --release --locked --quiet --no-default-features --features "$FEATURES" --bin brimful
exec "$program" demo "$@"
