#!/usr/bin/env bash
# Checks formatting, lints, documentation, licences, compiled kernels and the Python and shell sources; builds no program.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

step() {
    say "== $*"
    "$@"
}

fetch_crates
step cargo fmt --all --check
step cargo clippy --locked --quiet --workspace --all-targets -- -D warnings
step cargo clippy --locked --quiet --all-targets --features cuda,nvml,parquet -- -D warnings
case $FEATURES in
*turbo*) step cargo clippy --locked --quiet --all-targets --features turbo -- -D warnings ;;
esac
RUSTDOCFLAGS="-D warnings" step cargo doc --locked --quiet --no-deps --document-private-items --features "$FEATURES"

if command -v cargo-deny >/dev/null; then
    step cargo deny --locked check licenses bans sources
else
    say "licences not checked: cargo install cargo-deny brings the check"
fi

step scripts/ptx.sh --check

scripts/setup-python.sh lint
python="${VENV:-.venv}/bin/python"
folders=()
for folder in bindings/python benches examples scripts; do
    [ ! -d "$folder" ] || folders+=("$folder")
done
step "$python" -m compileall -q "${folders[@]}"
step "$python" -m ruff check "${folders[@]}"
step "$python" -m ruff format --check "${folders[@]}"
for script in scripts/*.sh .ci/run; do
    bash -n "$script"
done
say "== no complaints"
