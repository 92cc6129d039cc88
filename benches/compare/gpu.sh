#!/usr/bin/env bash
# Everything that is measured of the GPU path, in parts: gpu.sh PART..., or gpu.sh all.
#   data      distinct files as shards, indexes and folders, unless they are there (PHOTOS=folder: made from these)
#   copies    pinned copies: the machine's, and brimful's
#   load      loaders alone: brimful, DALI, torch, webdataset, and the same work without a loader
#   resnet50  training fed by each loader against training on resident data
#   resnet18  the same
#   workers   ResNet-18 at the default num_workers and at counts set by hand
#   bench     the command's own bench, with and without --train
# ROUNDS (2), EACH (2 seconds), FILES (20000), DATA, OUT, PYTHON, and LOAD_PEERS and TRAIN_PEERS ("a;b") change what is
# done. A part that fails does not stop the others. ROUNDS=5 is what a published number takes.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}
rounds=${ROUNDS:-2}
each=${EACH:-2}
files=${FILES:-20000}
data=${DATA:-/tmp/brimful-bench/data}
out=${OUT:-$root/target/bench/gpu}
batch=${BATCH_SIZE:-256}
device=${DEVICE:-cuda}
export PYTHONUNBUFFERED=1 PYTHONPATH="$root/bindings/python${PYTHONPATH:+:$PYTHONPATH}"
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$(dirname "$data")/cache}
common=(--batch-size "$batch")
times=(--rounds "$rounds" --seconds "$each")

has_dali() { "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("nvidia.dali") is None)' 2>/dev/null; }

# The peers of a list that are here, one a line.
peers() {
    tr ';' '\n' <<<"$1" | if has_dali; then cat; else grep -v '^DALI'; fi
}

make_data() {
    [ ! -f "$data/data.json" ] || { echo "data: there already, in $data"; return 0; }
    local photos=${PHOTOS:-}
    if [ -z "$photos" ]; then
        photos=$(dirname "$data")/photos
        "$python" -m brimful demo --samples 512 --dir "$photos" >/dev/null || return
    fi
    "$python" "$here/make_data.py" "$photos" "$data" --count "$files"
}

compare() {
    local name=$1 list=$2
    shift 2
    local names
    mapfile -t names < <(peers "$list")
    "$python" "$here/compare.py" "$data" --device "$device" --start-together --out "$out/$name.json" \
        "${common[@]}" "${times[@]}" --peers "${names[@]}" "$@"
}

load_peers="brimful auto;brimful cpu;brimful gpu;no loader;DALI cpu;DALI mixed 0;DALI mixed 0.5;DALI mixed 0.9"
load_peers+=";torch DataLoader + torchvision.io;webdataset + PIL"
resnet50_peers="brimful auto;brimful cpu;brimful gpu;DALI cpu;DALI mixed 0;DALI mixed 0.9;torch DataLoader + torchvision.io"
# The others cannot keep up with this one anywhere near.
resnet18_peers="brimful auto;brimful cpu;brimful gpu;DALI mixed 0.5;DALI mixed 0.9"

part() {
    case $1 in
    data) make_data ;;
    copies) "$python" "$here/copies.py" "$data" "${common[@]}" "${times[@]}" --out "$out/copies.json" ;;
    load) compare load "${LOAD_PEERS:-$load_peers}" ;;
    resnet50) compare "$1" "${TRAIN_PEERS:-$resnet50_peers}" --only-train --train "$1" ;;
    resnet18) compare "$1" "${TRAIN_PEERS:-$resnet18_peers}" --only-train --train "$1" ;;
    workers)
        "$python" "$here/workers.py" "$data" --device "$device" "${common[@]}" "${times[@]}" --out "$out/workers.json"
        ;;
    bench)
        "$python" -m brimful bench loader --device "$device" --shards "$data/shards" --batch-size "$batch" \
            --seconds "$each" --runs "$rounds" --out "$out/bench-loader.json"
        local loaded=$?
        "$python" -m brimful bench loader --device "$device" --shards "$data/shards" --batch-size "$batch" \
            --train resnet50 --seconds "$each" --rounds "$rounds" --out "$out/bench-train.json" && return $loaded
        ;;
    *)
        echo "gpu.sh: no such part: $1" >&2
        return 2
        ;;
    esac
}

[ $# -gt 0 ] || { sed -n '2,12s/^# //p' "$0" >&2; exit 2; }
[ "$1" != all ] || set -- data copies load resnet50 resnet18 workers bench
mkdir -p "$out"
status=0
for name in "$@"; do
    began=$SECONDS
    echo "== $name ($(date +%H:%M:%S), $SECONDS s so far)"
    part "$name" || { status=1; echo "== $name FAILED" >&2; }
    echo "== $name took $((SECONDS - began)) s"
done
exit $status
