#!/usr/bin/env bash
# Makes the Python environment in $VENV hold what a purpose needs: lint, demo, test, compat, bench, frameworks or none.
# What is there already, or in the system's Python, is used; only the rest is downloaded.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

purpose=${1:?lint, demo, test, compat, bench, frameworks or none}
python=${PYTHON:-python3}
venv=${VENV:-.venv}

# Refuses to begin a download that would end with a full disk: needs_gigabytes N WHAT.
needs_gigabytes() {
    local folder free
    for folder in "$venv" "${TMPDIR:-/tmp}"; do
        free=$(($(df -Pk "$folder" | awk 'NR == 2 { print $4 }') / 1000000))
        [ "$free" -ge "$1" ] || fail "$2 needs $1 GB of free disk in $folder, which has $free GB" \
            "free some, or name an environment that has it: make VENV=path ..."
    done
}

# Prints those of the named modules that the environment cannot import.
missing_modules() {
    "$venv/bin/python" - "$@" <<'PYTHON'
import importlib.util, sys
print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))
PYTHON
}

make_venv() {
    command -v "$python" >/dev/null || fail "$python is missing" "apt install python3 python3-venv"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "$("$python" --version) is too old: 3.10 or newer is needed" "make PYTHON=python3.12 ..."
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "Python's venv module is missing" "apt install python3-venv"
    local packages=
    # Gigabytes are saved where the system's Python has torch already.
    "$python" -c 'import torch' 2>/dev/null && packages=--system-site-packages
    say "making $venv with $("$python" --version)"
    "$python" -m venv $packages "$venv"
}

install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" ||
        fail "pip could not install: $*" "is the package index reachable, and is there room on the disk?"
}

[ -x "$venv/bin/python" ] || make_venv

case $purpose in
lint)
    [ -z "$(missing_modules ruff)" ] || { say "downloading ruff: about 11 MB"; install 'ruff==0.17.6'; }
    ;;
demo)
    [ -z "$(missing_modules numpy)" ] || { say "downloading numpy: about 17 MB"; install numpy; }
    ;;
test)
    # torchvision comes with the torch it is made for, never beside another one; tests that need it are left out then.
    if [ -n "$(missing_modules torch)" ]; then
        say "downloading torch, which brings its CUDA libraries: about 5 GB, once"
        # Wheels are kept beside what they are unpacked to until all are there.
        needs_gigabytes 10 "installing torch"
        install torch torchvision
    fi
    small=$(missing_modules numpy pytest PIL)
    if [ -n "$small" ]; then
        say "downloading $small: about 25 MB"
        install ${small/PIL/pillow}
    fi
    ;;
compat)
    # What the tests of webdataset and torch import beside them.
    small=$(missing_modules imageio lmdb msgpack yaml expecttest psutil pytest_timeout)
    if [ -n "$small" ]; then
        say "downloading $small: about 4 MB"
        small=${small/yaml/pyyaml}
        # shellcheck disable=SC2086 -- several packages
        install ${small/pytest_timeout/pytest-timeout}
    fi
    ;;
bench)
    [ -z "$(missing_modules webdataset)" ] || { say "downloading webdataset: about 1 MB"; install webdataset; }
    ;;
frameworks)
    packages=$(missing_modules lightning accelerate transformers jax open_clip pandas)
    if [ -n "$packages" ]; then
        say "downloading $packages: up to 250 MB"
        # shellcheck disable=SC2086 -- several packages
        install ${packages/open_clip/open_clip_torch}
    fi
    ;;
none) ;;
*) fail "no such purpose: $purpose" "setup-python.sh lint | demo | test | compat | bench | frameworks | none" ;;
esac
