"""Every argument of torch's constructor: the same errors, attributes, lengths and warnings as torch's own class."""

from __future__ import annotations

import inspect
import re
import typing
import warnings
from contextlib import nullcontext

import pytest

import brimful
from brimful import transforms as T

torch = pytest.importorskip("torch")
data = torch.utils.data
CROP = T.Compose([T.CenterCrop(8), T.ToTensor()])


@pytest.fixture(scope="module")
def dataset(pattern):
    return brimful.ShardDataset(pattern, transform=CROP, index_cache=None)


class Numbers(data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index


class Counting(data.IterableDataset):
    def __len__(self):
        return 10

    def __iter__(self):
        return iter(range(12))


def outcome(kind, made, arguments):
    """The loader, or the type and text of the error that making it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return kind(made, **arguments)
        except Exception as error:
            return type(error), str(error)


REFUSED = [
    {"num_workers": -1},
    {"timeout": -1},
    {"num_workers": 1, "prefetch_factor": -1},
    {"prefetch_factor": 2},
    {"persistent_workers": True},
    {"multiprocessing_context": "fork"},
    {"num_workers": 1, "multiprocessing_context": "thread"},
    {"num_workers": 1, "multiprocessing_context": 3},
    {"shuffle": True, "sampler": [1, 2]},
    {"batch_size": 2, "batch_sampler": [[1]]},
    {"shuffle": True, "batch_sampler": [[1]]},
    {"sampler": [1], "batch_sampler": [[1]]},
    {"drop_last": True, "batch_sampler": [[1]]},
    {"batch_size": None, "drop_last": True},
    {"batch_size": 0},
    {"batch_size": -3},
    {"batch_size": 2.5},
    {"drop_last": 3},
]


@pytest.mark.parametrize("arguments", REFUSED, ids=str)
def test_what_torch_refuses_is_refused_in_its_words(dataset, arguments):
    for made in (dataset, Numbers()):
        theirs = outcome(data.DataLoader, made, arguments)
        assert isinstance(theirs, tuple)
        assert outcome(brimful.DataLoader, made, arguments) == theirs


@pytest.mark.parametrize("arguments", [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}], ids=str)
def test_iterable_data_sets_have_no_order_to_choose(arguments):
    theirs = outcome(data.DataLoader, Counting(), arguments)
    assert isinstance(theirs, tuple) and outcome(brimful.DataLoader, Counting(), arguments) == theirs


ACCEPTED = [
    {},
    {"batch_size": 4, "drop_last": True},
    {"batch_size": None},
    {"batch_size": 3, "shuffle": True},
    {"sampler": [1, 2, 3], "batch_size": 2},
    {"batch_sampler": [[1, 2], [3]]},
    {"num_workers": 2},
    {"num_workers": 2, "prefetch_factor": 5, "persistent_workers": True, "timeout": 3},
    {"num_workers": 1, "multiprocessing_context": "spawn", "worker_init_fn": print},
    {"num_workers": 1, "in_order": False},
    {"pin_memory": True, "pin_memory_device": "cuda"},
    {"generator": torch.Generator()},
    {"collate_fn": list},
]

NAMES = [
    "batch_size",
    "drop_last",
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "pin_memory_device",
    "timeout",
    "worker_init_fn",
    "in_order",
    "generator",
    "persistent_workers",
    "collate_fn",
    "_dataset_kind",
    "_auto_collation",
    "_iterator",
]


@pytest.mark.parametrize("arguments", ACCEPTED, ids=str)
def test_attributes_and_lengths_are_torchs(dataset, arguments):
    for made in (dataset, Numbers()):
        ours, theirs = (outcome(kind, made, arguments) for kind in (brimful.DataLoader, data.DataLoader))
        assert {name: getattr(ours, name) for name in NAMES} == {name: getattr(theirs, name) for name in NAMES}
        assert type(ours.multiprocessing_context) is type(theirs.multiprocessing_context)
        assert ours.dataset is theirs.dataset
        assert isinstance(ours.sampler, type(theirs.sampler))
        assert isinstance(ours.batch_sampler, type(theirs.batch_sampler))
        assert len(ours) == len(theirs)
        for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
            errors = [
                outcome(lambda _, loader=loader, name=name: setattr(loader, name, 3), None, {})
                for loader in (ours, theirs)
            ]
            assert errors[0] == errors[1] and errors[0][0] is ValueError


def test_the_constructor_is_torchs_with_keywords_added():
    ours = inspect.signature(brimful.DataLoader).parameters
    theirs = inspect.signature(data.DataLoader).parameters
    positional = [name for name, at in theirs.items() if at.kind is at.POSITIONAL_OR_KEYWORD]
    assert [name for name, at in ours.items() if at.kind is at.POSITIONAL_OR_KEYWORD] == positional
    for name, parameter in theirs.items():
        assert (ours[name].kind, ours[name].default) == (parameter.kind, parameter.default), name
    added = [ours[name] for name in ours if name not in theirs]
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in added)


def test_it_is_generic_in_annotations():
    def train(loader: brimful.DataLoader[int]) -> None: ...

    assert typing.get_type_hints(train)["loader"] == brimful.DataLoader[int]


def test_a_timeout_needs_workers_to_wait_for(dataset):
    for made in (dataset, Numbers()):
        for kind in (data.DataLoader, brimful.DataLoader):
            with pytest.raises(AssertionError, match="timeout"):
                iter(kind(made, timeout=1))


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is one")
def test_memory_that_nobody_needs_pinned_is_warned_of(dataset):
    for kind in (data.DataLoader, brimful.DataLoader):
        with pytest.warns(UserWarning, match="no accelerator|there is no accelerator"):
            next(iter(kind(dataset, pin_memory=True)))


def test_a_worker_init_fn_is_not_called_where_there_are_no_workers(dataset):
    called = []
    loader = brimful.DataLoader(dataset, 8, num_workers=2, worker_init_fn=called.append)
    assert len(list(loader)) == 6 and not called
    assert loader.explain().engine == "native"
    assert re.search("worker_init_fn is not called", str(loader.explain()))


def test_memory_is_pinned_or_not_with_a_torch_that_knows_cuda_alone(dataset, monkeypatch):
    monkeypatch.delattr(torch, "accelerator", raising=False)
    with pytest.warns(UserWarning, match="no accelerator") if not torch.cuda.is_available() else nullcontext():
        assert len(list(brimful.DataLoader(dataset, 16, pin_memory=True))) == 3


def test_a_generic_loader_runs_on_torchs_iterators():
    for arguments, kind in (
        ({}, "_SingleProcessDataLoaderIter"),
        ({"num_workers": 1}, "_MultiProcessingDataLoaderIter"),
    ):
        batches = iter(brimful.DataLoader(Numbers(), 5, **arguments))
        assert type(batches).__name__ == kind
        assert [batch.tolist() for batch in batches] == [list(range(5)), list(range(5, 10))]


def test_it_explains_stage_by_stage(dataset):
    def lines(*arguments, **keywords):
        return str(brimful.DataLoader(*arguments, **keywords).explain()).splitlines()

    table = lines(dataset, 4, sampler=data.SubsetRandomSampler([1]))
    assert table[0] == "engine  native"
    assert table[1].split() == ["stage", "runs", "in", "why"]
    assert [line.split()[0] for line in table[2:8]] == ["order", "read", "decode", "CenterCrop", "ToTensor", "batch"]
    assert "SubsetRandomSampler gives the numbers" in table[2]
    assert any("shuffled, all samples, seed 3" in line for line in lines(dataset, shuffle=True, seed=3))
    assert any("Numbers is no data set that brimful reads itself" in line for line in lines(Numbers(), num_workers=2))
    assert any("2 worker processes" in line for line in lines(Numbers(), num_workers=2))


def test_it_may_be_put_in_the_place_of_torchs_class(monkeypatch):
    theirs = [batch.tolist() for batch in data.DataLoader(Numbers(), 4)]
    monkeypatch.setattr(torch.utils.data, "DataLoader", brimful.DataLoader)
    loader = torch.utils.data.DataLoader(Numbers(), 4)
    assert len(loader) == 3
    assert [batch.tolist() for batch in loader] == theirs
