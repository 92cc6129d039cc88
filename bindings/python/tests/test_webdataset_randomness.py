"""What native pipelines of webdataset draw: crops and orders differ by epoch, worker and rank, and repeat by seed."""

from __future__ import annotations

import random
import warnings

import pytest

import brimful.webdataset as wds

torch = pytest.importorskip("torch")
transforms = pytest.importorskip("torchvision.transforms")


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def crops(urls, shuffle=0, **options):
    """Crops of a pipeline and the keys of what they are of."""
    augment = transforms.Compose([transforms.RandomResizedCrop(24), transforms.ToTensor()])
    ds = wds.WebDataset(urls, **options)
    ds = (ds.shuffle(shuffle) if shuffle else ds).decode("pil").to_tuple("jpg", "__key__").map_tuple(augment, None)
    assert ds.explain().engine == "native"
    return ds


def drawn(rows):
    return {key: image.sum().item() for image, key in rows}


def number_of_changes(one, other):
    assert one.keys() == other.keys()
    return sum(one[key] != other[key] for key in one)


@pytest.mark.parametrize(
    "options",
    [{"shardshuffle": False}, {"shardshuffle": 3}, {"shardshuffle": 3, "seed": 5}, {"resampled": True}],
    ids=["in order", "shuffled shards", "seeded", "resampled"],
)
def test_crops_are_drawn_anew_each_epoch(pattern, options):
    ds = crops(pattern, **options)
    if "resampled" in options:
        ds = ds.with_epoch(48)
    first, second = drawn(ds), drawn(ds)
    assert number_of_changes(first, second) > 40


def test_crops_are_drawn_anew_each_epoch_in_worker_processes(pattern):
    loader = torch.utils.data.DataLoader(crops(pattern, shardshuffle=False), batch_size=None, num_workers=2)
    assert number_of_changes(drawn(loader), drawn(loader)) > 40


def test_workers_and_ranks_draw_other_crops_of_the_same_picture(folder, monkeypatch):
    shard = str(folder / "train-000.tar")
    urls = f"{shard}::{shard}"
    loader = torch.utils.data.DataLoader(crops(urls, shardshuffle=False), batch_size=None, num_workers=2)
    rows = [(image.sum().item(), key) for image, key in loader]
    assert len(rows) == 32
    assert len(set(rows)) > 28
    monkeypatch.setenv("WORLD_SIZE", "2")
    ranks = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        random.seed(0)
        ranks.append(drawn(crops(shard, shardshuffle=False, nodesplitter=None)))
    assert number_of_changes(*ranks) > 12


def test_the_same_seed_draws_the_same_crops_in_the_same_order(pattern):
    def epochs(seed):
        ds = crops(pattern, 100, shardshuffle=3, seed=seed)
        return [list(drawn(ds).items()) for _ in range(2)]

    assert epochs(3) == epochs(3) != epochs(4)


@pytest.mark.parametrize("seed", [None, 7], ids=["unseeded", "seeded"])
def test_one_worker_process_a_rank_gives_each_sample_once_and_another_order_each_epoch(pattern, monkeypatch, seed):
    monkeypatch.setenv("WORLD_SIZE", "3")
    epochs = [[], []]
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        torch.manual_seed(rank)
        ds = wds.WebDataset(pattern, shardshuffle=3, seed=seed, nodesplitter=wds.split_by_node)
        ds = ds.shuffle(100).decode().to_tuple("cls")
        assert ds.explain().engine == "native"
        loader = torch.utils.data.DataLoader(ds, batch_size=None, num_workers=1)
        for epoch in epochs:
            epoch += [int(label) for (label,) in loader]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(48))
    assert epochs[0] != epochs[1]
