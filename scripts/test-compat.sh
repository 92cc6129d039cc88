#!/usr/bin/env bash
# Runs brimful under the frameworks that are installed (FRAMEWORKS=1 installs them first), and the test suites of
# webdataset and torch against brimful, as far as they are at hand: WEBDATASET_SUITE and TORCH_SUITE name a checkout of
# each, or a git repository and a revision in it (path@revision). TORCHVISION_TRAIN and TIMM_TRAIN name training scripts
# of torchvision (references/classification/train.py) and timm (train.py). With RAY=1 conversions on a local Ray cluster are
# tested too; ray (80 MB) is then installed.
set -euo pipefail
. "$(dirname "$0")/machine.sh"

options=()
for suite in webdataset torch; do
    variable=$(printf '%s' "$suite" | tr '[:lower:]' '[:upper:]')_SUITE
    if [ -n "${!variable:-}" ]; then
        options+=("--$suite" "${!variable}")
    else
        say "without the suite of $suite: $variable=path@revision names one, a checkout or a git repository"
    fi
done

fetch_crates
scripts/setup-python.sh test
scripts/setup-python.sh compat
venv=$(cd "${VENV:-.venv}" && pwd)
[ -z "${FRAMEWORKS:-}" ] || scripts/setup-python.sh frameworks
build_extension "$venv"
say "== brimful under Lightning, accelerate, Transformers and JAX"
PYTHONPATH=bindings/python "$venv/bin/python" -m pytest -q -rs bindings/python/tests/compat
if [ -n "${RAY:-}" ]; then
    "$venv/bin/python" -m pip install --quiet 'ray>=2.9'
    PYTHONPATH=bindings/python "$venv/bin/python" -m pytest -q bindings/python/tests/test_ray.py
fi
[ ${#options[@]} -gt 0 ] || { say "no suite is at hand"; exit 0; }
PYTHONPATH=bindings/python "$venv/bin/python" bindings/python/tests/compat/run_suite.py "${options[@]}" ${OUT:+--out "$OUT"}
