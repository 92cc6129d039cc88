"""Whole epochs over many shards where the system allows a process 64 open files."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from conftest import sample, write_shard

SHARDS = 100

CODE = """
import resource, sys
import brimful
from brimful import transforms as T

pattern, io, access, kind = sys.argv[1:]
loader_type = getattr(brimful, kind)  # DataLoader brings torch in, which opens files of its own
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
crop = T.Compose([T.CenterCrop(16), T.ToTensor()])
dataset = brimful.ShardDataset(pattern, transform=crop, io=io, access=access, index_cache=None, index_threads=8)
loader = loader_type(dataset, batch_size=25, shuffle=True, num_workers=8)
for _ in range(2):
    labels = [label for _, labels in loader for label in labels.tolist()]
    print(sorted(labels) == list(range(2 * {shards})))
""".replace("{shards}", str(SHARDS))


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("many")
    for shard in range(SHARDS):
        samples = [sample(number, width=24, height=24) for number in (2 * shard, 2 * shard + 1)]
        write_shard(folder / f"{shard:03d}.tar", samples)
    return str(folder / f"{{000..{SHARDS - 1:03d}}}.tar")


@pytest.mark.parametrize("kind", ["Loader", "DataLoader"])
@pytest.mark.parametrize("access", ["indexed", "stream"])
@pytest.mark.parametrize("io", ["mmap", "read"])
def test_whole_epochs_over_100_shards_work_under_64_descriptors(many, io, access, kind):
    if kind == "DataLoader":
        pytest.importorskip("torch")
    command = [sys.executable, "-c", CODE, many, io, access, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 2
