"""How loaders read: methods by name, and the profile that `brimful bench storage` keeps."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy
import pytest

import brimful


def labels(dataset) -> list[int]:
    loader = brimful.Loader(dataset, batch_size=2, num_workers=1)
    return [int(label) for batch in loader for label in batch[1]]


@pytest.fixture
def shards(tmp_path):
    """Two shards of photos on the file system of the tests, which may have no direct reads."""
    return brimful._native.make_demo_shards(tmp_path / "data", samples=6, shards=2, seed=0, threads=1, progress=None)


@pytest.mark.parametrize("io", ["auto", "mmap", "read", "direct", "uring"])
def test_every_method_gives_the_same_samples(shards, io):
    crop = brimful.transforms.CenterCrop(32)
    expected = brimful.ShardDataset(shards, transform=crop, io="read")
    try:
        dataset = brimful.ShardDataset(shards, transform=crop, io=io)
    except brimful.errors.BrimfulError as error:
        # tmpfs has no direct reads, containers often no io_uring: then it is said so.
        assert io in ("direct", "uring") and ("direct reads" in str(error) or "io_uring" in str(error))
        return
    assert labels(dataset) == labels(expected)
    image, again = (numpy.asarray(data[3][0]) for data in (dataset, expected))
    assert (image == again).all()


def test_an_unknown_method_is_an_error_that_names_the_known_ones(shards):
    with pytest.raises(brimful.errors.InvalidOptionError) as caught:
        brimful.ShardDataset(shards, io="telepathy")
    assert '"uring"' in str(caught.value.hint)


def bench(shards, method: str) -> dict:
    """Measures the storage of the shards with one method, whose profile is kept then."""
    command = [sys.executable, "-m", "brimful", "bench", "storage", "--json", f"--methods={method}", "--threads=3"]
    command += ["--patterns=members", "--cache=cold", "--runs=1", "--duration=0.1", str(shards[0].parent)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_auto_follows_the_profile_that_the_bench_keeps(shards, tmp_path):
    document = bench(shards, "pread")
    assert document["profile"].startswith(str(tmp_path))
    dataset = brimful.ShardDataset(shards, transform=brimful.transforms.CenterCrop(32))
    assert dataset.native.io_profile.startswith("pread by 3 threads, as measured on ")
    loader = brimful.Loader(dataset, batch_size=2)
    assert "3 reader threads" in str(loader.explain()) and "profile of this storage" in str(loader.explain())
    assert labels(dataset) == labels(
        brimful.ShardDataset(shards, transform=brimful.transforms.CenterCrop(32), io="mmap")
    )
    assert brimful.ShardDataset(shards, io="mmap").native.io_profile is None


def test_loaders_in_torchs_place_follow_the_profile_alone_joined_and_in_part(shards):
    bench(shards, "pread")
    torch = pytest.importorskip("torch")
    first, second = (brimful.ShardDataset([shard], transform=brimful.transforms.CenterCrop(32)) for shard in shards)
    joined = torch.utils.data.ConcatDataset([first, torch.utils.data.Subset(second, [0, 1])])
    for dataset in (first, joined):
        told = str(brimful.DataLoader(dataset, 2, num_workers=1).explain())
        assert "3 reader threads" in told and "the profile of this storage says: read by pread by 3 threads" in told
    told = str(brimful.DataLoader(first, 2, num_workers=1, io="mmap").explain())
    assert "1 reader threads" in told and "profile" not in told


def test_a_profile_of_another_method_leaves_data_in_the_page_cache_that_have_room_there(shards):
    try:
        bench(shards, "direct")
    except subprocess.CalledProcessError as error:
        assert "direct reads are not possible" in error.stderr
        return
    dataset = brimful.ShardDataset(shards, transform=brimful.transforms.CenterCrop(32))
    assert dataset.native.io_profile.startswith("direct by 3 threads") and "not followed" in dataset.native.io_profile
    assert labels(dataset) == labels(
        brimful.ShardDataset(shards, transform=brimful.transforms.CenterCrop(32), io="read")
    )
