"""Data sets that do some things in their own way, and other arguments of the same data set."""

from __future__ import annotations

import os

import pytest

import brimful
from conftest import SAMPLES, sample, write_shard

torch = pytest.importorskip("torch")


class Doubled(brimful.ShardDataset):
    def __getitem__(self, index):
        return 2 * super().__getitem__(index)


class Batched(brimful.ShardDataset):
    def __getitems__(self, indices):
        return [-row for row in super().__getitems__(indices)]


class Both(brimful.ShardDataset):
    def __getitem__(self, index):
        return self.__getitems__([index])[0]

    def __getitems__(self, indices):
        return [row + 1 for row in super().__getitems__(indices)]


class Short(brimful.ShardDataset):
    def __len__(self):
        return 5


@pytest.mark.parametrize(
    ("kind", "expected"), [(Doubled, [0, 2, 4]), (Batched, [0, -1, -2]), (Both, [1, 2, 3]), (Short, [0, 1, 2])]
)
@pytest.mark.parametrize("loader", [brimful.DataLoader, torch.utils.data.DataLoader])
def test_what_a_subclass_overrides_is_called(pattern, kind, expected, loader):
    dataset = kind(pattern, fields="cls")
    assert [dataset[index] for index in range(3)] == expected
    assert next(iter(loader(dataset, 3))).tolist() == expected
    assert sum(len(batch) for batch in loader(dataset, 3)) == (5 if kind is Short else SAMPLES)
    with pytest.raises(brimful.InvalidOptionError, match="of its own"):
        brimful.Loader(dataset, 3)


def test_any_argument_can_be_changed(pattern, folder):
    dataset = brimful.ShardDataset(pattern, fields=("cls", "txt"))
    assert dataset.with_options(fields="txt")[1] == "photo 1"
    assert dataset.with_options(fields=["txt"], target_transform=str.upper)[1] == ("PHOTO 1",)
    assert len(dataset.with_options(patterns=folder / "train-000.tar")) == SAMPLES // 3
    transform = brimful.transforms.CenterCrop(8)
    assert dataset.with_options(fields="jpg", transform=transform)[0].shape == (3, 8, 8)
    assert dataset[1] == (1, "photo 1")
    with pytest.raises(TypeError, match="fiels"):
        dataset.with_options(fiels="cls")


def test_paths_of_any_bytes_can_be_given(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff\xfe")
    folder.mkdir()
    shard = write_shard(folder / "a.tar", [sample(0)])
    for patterns in (str(shard), shard, os.fsencode(shard), [folder], str(tmp_path / "*" / "*.tar")):
        assert brimful.ShardDataset(patterns, fields="cls").paths == [shard]


def test_a_seed_governs_torchs_path_and_epochs_repeat(pattern):
    dataset = Doubled(pattern, fields="cls")

    def loader(**options):
        return brimful.DataLoader(dataset, 8, shuffle=True, collate_fn=list, **options)

    def epochs(loader, count=2):
        return [[label for batch in loader for label in batch] for _ in range(count)]

    first = epochs(loader(seed=1))
    assert first == epochs(loader(seed=1))
    assert first != epochs(loader(seed=2))
    assert first[0] != first[1]
    later = loader(seed=1)
    later.set_epoch(1)
    assert epochs(later, 1) == first[1:]
    with pytest.warns(UserWarning, match="set_epoch without effect"):
        loader().set_epoch(1)
    with pytest.warns(UserWarning, match="seed without effect"):
        loader(seed=1, generator=torch.Generator())


def test_ranks_are_refused_where_torch_would_give_each_all_samples(pattern):
    dataset = Doubled(pattern, fields="cls")
    with pytest.raises(brimful.InvalidOptionError, match="shared out"):
        brimful.DataLoader(dataset, 8, collate_fn=list, rank=0, world_size=2)
    brimful.DataLoader(dataset, 8, collate_fn=list, rank=0, world_size=1)


def test_threads_are_not_the_processes_that_torch_warns_of(pattern, recwarn):
    brimful.DataLoader(brimful.ShardDataset(pattern, fields="cls"), 8, num_workers=4 * (os.cpu_count() or 1))
    assert not recwarn.list


@pytest.mark.parametrize(
    "use",
    [
        lambda pattern: brimful.ShardDataset(None),
        lambda pattern: brimful.ShardDataset(5),
        lambda pattern: brimful.ShardDataset(pattern, memory_limit_bytes=-1),
        lambda pattern: brimful.ShardDataset(pattern, index_cache=""),
        lambda pattern: brimful.Loader(brimful.ShardDataset(pattern), -1),
        lambda pattern: brimful.Loader(brimful.ShardDataset(pattern), "3"),
        lambda pattern: brimful.Loader(brimful.ShardDataset(pattern), 2, num_workers=1.5),
        lambda pattern: brimful.Loader(brimful.ShardDataset(pattern), 2, shuffle=True, shuffle_window=-1),
        lambda pattern: brimful.Loader(brimful.ShardDataset(pattern), 2, on_error="skip", max_errors="3"),
        lambda pattern: brimful.Loader(brimful.ShardDataset(pattern), 2).set_epoch(-1),
        lambda pattern: brimful.transforms.Resize(8, interpolation="foo"),
        lambda pattern: brimful.ShardDataset(pattern, transform=brimful.transforms.RandomHorizontalFlip(float("nan"))),
    ],
)
def test_values_that_make_no_sense_are_errors_of_ours(pattern, use):
    with pytest.raises(brimful.InvalidOptionError):
        use(pattern)


def test_star_imports_hide_nothing_of_the_standard_library():
    names = {}
    exec("from brimful import *", names)
    assert "io" not in names


def test_an_index_that_cannot_be_kept_is_told(pattern):
    with pytest.warns(brimful.DataWarning, match="not kept"):
        brimful.ShardDataset(pattern, index_cache="/dev/null")
