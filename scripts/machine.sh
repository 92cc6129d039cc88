# Sourced by the other scripts: goes to the root of the repository, checks what the build needs, and picks the features
# that this machine can build. It installs nothing.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "error: $1"
    [ -z "${2:-}" ] || say "hint: $2"
    exit 2
}

command -v cargo >/dev/null || fail "cargo is missing" "install Rust 1.89 or newer: https://rustup.rs"
command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null ||
    fail "a C compiler is missing" "apt install build-essential"

# Prints the tools that building libjpeg-turbo needs and this machine lacks, each behind a space.
missing_for_turbo() {
    local tool missing=
    for tool in cmake nasm; do
        command -v "$tool" >/dev/null || missing="$missing $tool"
    done
    printf '%s' "$missing"
}

# The GPU's path needs neither a toolkit nor a GPU to build, io_uring nothing but its kernel at run time, Parquet nothing.
FEATURES=cli,cuda,nvml,io-uring,parquet
if [ -z "$(missing_for_turbo)" ]; then
    FEATURES=cli,cuda,nvml,io-uring,parquet,turbo
else
    say "without libjpeg-turbo:$(missing_for_turbo) not found; JPEG decoding is slower." \
        "To build it in: apt install$(missing_for_turbo)"
fi

# Downloads the crates once, and says beforehand how much that is.
fetch_crates() {
    cargo fetch --locked --offline --quiet >/dev/null 2>&1 && return
    say "downloading about 30 MB of crates from crates.io"
    cargo fetch --locked --quiet
}

# Prints a source that is newer than a file, if there is one.
newer_sources() {
    find Cargo.toml Cargo.lock src kernels bindings/python/Cargo.toml bindings/python/src \
        \( -name "*.rs" -o -name "*.ptx" -o -name "Cargo.*" \) -newer "$1" -print -quit
}

# Builds brimful._native beside the package's Python sources: build_extension VENV [--release].
# cargo alone is enough for that, so a demo needs no maturin; wheels are maturin's.
build_extension() {
    local venv=$1 profile=debug target
    [ "${2:-}" != --release ] || profile=release
    target=$(cargo metadata --locked --offline --format-version 1 --no-deps |
        "$venv/bin/python" -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
    if [ "$profile" = release ]; then
        if [ ! -e "$target/release/lib_native.so" ]; then
            say "building: three to six minutes the first time"
        elif [ -n "$(newer_sources "$target/release/lib_native.so")" ]; then
            say "building what has changed"
        fi
    fi
    local features=()
    case $FEATURES in *turbo*) features=(--features turbo) ;; esac
    PYO3_BUILD_EXTENSION_MODULE=1 PYO3_PYTHON=$venv/bin/python \
        cargo build --locked --quiet --package brimful-python "${features[@]+"${features[@]}"}" ${2:-}
    install -m 755 "$target/$profile/lib_native.so" bindings/python/brimful/_native.abi3.so
}
