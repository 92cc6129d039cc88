#!/usr/bin/env bash
# Compiles kernels/*.cu to the PTX beside them, with one version of NVRTC, so that everyone gets the same bytes.
# ptx.sh --check writes nothing and fails when a file there is not what its source gives.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

# The oldest that is worth having: its PTX runs with any driver from 525 on.
package=nvidia-cuda-nvrtc-cu12
version=12.0.140

case "$(uname -sm)" in
"Linux x86_64") ;;
*)
    say "PTX not compiled: $package is for Linux on x86_64"
    exit 0
    ;;
esac

scripts/setup-python.sh none
venv=${VENV:-.venv}
# Beside the environment's packages, not among them: torch brings another version of the same package.
folder=$venv/nvrtc-$version
library=$folder/nvidia/cuda_nvrtc/lib/libnvrtc.so.12
if [ ! -e "$library" ]; then
    say "downloading $package $version: about 22 MB"
    wheels=$(mktemp -d)
    trap 'rm -rf "$wheels"' EXIT
    if ! "$venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$wheels" "$package==$version"; then
        [ -z "${CI:-}" ] || fail "$package $version could not be downloaded" "is the package index reachable?"
        say "PTX not compiled: $package $version could not be downloaded"
        exit 0
    fi
    "$venv/bin/python" -m zipfile -e "$wheels"/*.whl "$folder.part"
    rm -rf "$folder"
    mv "$folder.part" "$folder"
fi

if [ "${1:-}" != --check ]; then
    "$venv/bin/python" scripts/ptx.py "$library" kernels/*.cu kernels
    exit
fi

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"$venv/bin/python" scripts/ptx.py "$library" kernels/*.cu "$fresh"
for file in kernels/*.ptx; do
    [ -e "$fresh/$(basename "$file")" ] || fail "$file has no source" "delete it"
done
for file in "$fresh"/*.ptx; do
    cmp -s "$file" "kernels/$(basename "$file")" ||
        fail "kernels/$(basename "$file") is not what its source gives" "run scripts/ptx.sh and commit the result"
done
