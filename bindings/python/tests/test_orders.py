"""Samplers and batch samplers drive the native engine: the same numbers in the same batches as with torch's loader."""

from __future__ import annotations

import io
import itertools
import pickle
import random

import numpy
import pytest

import brimful
from brimful import transforms as T
from conftest import SAMPLES

torch = pytest.importorskip("torch")
data = torch.utils.data
CROP = T.Compose([T.RandomResizedCrop(8), T.ToTensor()])


class Broken(data.Sampler):
    """Names six samples, then raises."""

    def __iter__(self):
        yield from range(6)
        raise LookupError("no more")


@pytest.fixture(scope="module")
def dataset(pattern):
    return brimful.ShardDataset(pattern, transform=CROP, index_cache=None)


def seeded(number=3):
    return torch.Generator().manual_seed(number)


WEIGHTS = [1 + number % 5 for number in range(SAMPLES)]

SAMPLERS = {
    "weighted": lambda ds: {"sampler": data.WeightedRandomSampler(WEIGHTS, 70, generator=seeded())},
    "weighted, once each": lambda ds: {"sampler": data.WeightedRandomSampler(WEIGHTS, 20, False, generator=seeded())},
    "subset": lambda ds: {"sampler": data.SubsetRandomSampler(range(5, 25), generator=seeded())},
    "random": lambda ds: {"sampler": data.RandomSampler(ds, generator=seeded())},
    "random, replaced": lambda ds: {"sampler": data.RandomSampler(ds, True, 40, generator=seeded())},
    "random, the loader's generator": lambda ds: {"sampler": data.RandomSampler(ds, True, 9), "generator": seeded()},
    "list": lambda ds: {"sampler": [3, 3, 1, -1, 47]},
    "tensor": lambda ds: {"sampler": torch.tensor([4, 2, 9])},
    "rank 1 of 3": lambda ds: {"sampler": data.DistributedSampler(ds, 3, 1, seed=7)},
    "rank 1 of 5, dropping": lambda ds: {"sampler": data.DistributedSampler(ds, 5, 1, seed=7, drop_last=True)},
    "rank 4 of 5, in order": lambda ds: {"sampler": data.DistributedSampler(ds, 5, 4, shuffle=False)},
    "drop_last": lambda ds: {"sampler": range(20), "drop_last": True},
    "batches": lambda ds: {"batch_size": 1, "batch_sampler": [[1, 2], [0], [5, 5, 5, 6, 7, 8]]},
    "BatchSampler": lambda ds: {
        "batch_size": 1,
        "batch_sampler": data.BatchSampler(data.SubsetRandomSampler(range(11), generator=seeded()), 4, False),
    },
    "no batches": lambda ds: {"batch_size": None, "sampler": [7, 1, 7]},
    "no batches, in order": lambda ds: {"batch_size": None},
    "empty": lambda ds: {"sampler": []},
}


def labels(batches):
    return [batch[1].tolist() if torch.is_tensor(batch[1]) else batch[1] for batch in batches]


@pytest.fixture(scope="module")
def plain(pattern):
    transform = T.Compose([T.CenterCrop(8), T.ToTensor()])
    return brimful.ShardDataset(pattern, transform=transform, index_cache=None)


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
def test_the_order_is_the_samplers_and_everything_drawn_later_too(plain, make):
    dataset = plain

    def epochs(kind):
        torch.manual_seed(11)
        arguments = {"batch_size": 8, **make(dataset)}
        loader = kind(dataset, **arguments)
        got = []
        for epoch in range(2):
            if isinstance(arguments.get("sampler"), data.DistributedSampler):
                arguments["sampler"].set_epoch(epoch)
            got.append(labels(loader))
        later = torch.rand(2), torch.rand(2, generator=arguments.get("generator"))
        return loader, got, [values.tolist() for values in later]

    loader, ours, later = epochs(brimful.DataLoader)
    assert loader.explain().engine == "native"
    other, theirs, later_there = epochs(data.DataLoader)
    assert ours == theirs
    assert len(loader) == len(other)
    assert later == later_there


def test_whatever_is_drawn_after_an_iteration_is_as_with_torch(plain):
    for arguments in (
        {},
        {"shuffle": True},
        {"generator": 5},
        {"shuffle": True, "generator": 5},
        {"sampler": 4},
        {"sampler": 4, "generator": 5},
    ):
        drawn = []
        for kind in (data.DataLoader, brimful.DataLoader):
            torch.manual_seed(1)
            given = dict(arguments)
            if "generator" in given:
                given["generator"] = seeded(given["generator"])
            if "sampler" in given:
                given["sampler"] = data.WeightedRandomSampler(WEIGHTS, given["sampler"])
            for _ in kind(plain, 16, **given):
                pass
            drawn.append((torch.rand(3).tolist(), torch.rand(3, generator=given.get("generator")).tolist()))
        assert drawn[0] == drawn[1], arguments


def test_no_batching_gives_samples_as_torch_does(dataset):
    ours = next(iter(brimful.DataLoader(dataset, batch_size=None)))
    theirs = next(iter(data.DataLoader(dataset, batch_size=None)))
    assert [type(value) for value in ours] == [type(value) for value in theirs]
    assert ours[0].shape == theirs[0].shape and ours[1] == theirs[1]


def test_a_sampler_without_end_is_asked_only_as_far_as_batches_are_taken(dataset):
    asked = []

    def endless():
        for number in itertools.cycle(range(SAMPLES)):
            asked.append(number)
            yield number

    class Endless(data.Sampler):
        def __iter__(self):
            return endless()

    loader = brimful.DataLoader(dataset, 4, sampler=Endless(), num_workers=1, prefetch_factor=2)
    batches = iter(loader)
    for number in range(6):
        assert next(batches)[1].tolist() == [(4 * number + row) % SAMPLES for row in range(4)]
        assert len(asked) <= 4 * (number + 1 + 2)
    with pytest.raises(TypeError):
        len(loader)


def test_a_sampler_that_raises_does_so_in_its_place(dataset):
    got = []
    with pytest.raises(LookupError, match="no more"):
        for batch in brimful.DataLoader(dataset, 2, sampler=Broken()):
            got.append(batch[1].tolist())
    assert got == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        ({"sampler": [1, SAMPLES]}, IndexError, "48 samples"),
        ({"sampler": [1, -SAMPLES - 1]}, IndexError, "-49"),
        ({"sampler": ["1"]}, TypeError, "integer"),
        ({"batch_sampler": [[1], []]}, brimful.InvalidOptionError, "no samples"),
        ({"batch_sampler": [3]}, TypeError, "iterable"),
    ],
)
def test_numbers_that_are_none_are_refused(dataset, arguments, error, word):
    with pytest.raises(error, match=word):
        list(brimful.DataLoader(dataset, **arguments))


def test_a_sample_that_comes_again_is_cropped_anew_and_the_same_seed_repeats_it(dataset):
    def images(seed):
        return next(iter(brimful.DataLoader(dataset, 3, sampler=[5, 5, 5], seed=seed)))[0]

    first = images(1)
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[1], first[2])
    assert torch.equal(first, images(1)) and not torch.equal(first, images(2))
    plain = next(iter(brimful.DataLoader(dataset, 6, seed=1)))[0]
    assert torch.equal(plain[5], first[0])


STATEFUL = {
    "global generator": lambda ds: {"sampler": data.WeightedRandomSampler(WEIGHTS, 21)},
    "own generator": lambda ds: {"sampler": data.SubsetRandomSampler(range(21), generator=seeded())},
    "loader's generator": lambda ds: {"sampler": data.RandomSampler(ds, True, 21, generator=seeded())},
    "batches": lambda ds: {
        "batch_size": 1,
        "batch_sampler": data.BatchSampler(data.WeightedRandomSampler(WEIGHTS, 21, generator=seeded()), 5, False),
    },
    "ranks": lambda ds: {"sampler": data.DistributedSampler(ds, 2, 1, seed=3)},
    "Python's generator": lambda ds: {"sampler": Shuffled(random)},
    "NumPy's generator": lambda ds: {"sampler": Shuffled(numpy.random)},
    "a generator of Python's": lambda ds: {"sampler": Shuffled(random.Random(3))},
    "a generator of NumPy's": lambda ds: {"sampler": Shuffled(numpy.random.default_rng(3))},
    "an old generator of NumPy's": lambda ds: {"sampler": Shuffled(numpy.random.RandomState(3))},
    "a state of its own": lambda ds: {"sampler": Keeping()},
}


class Shuffled(data.Sampler):
    """Shuffles with what it is given: a generator, or a module that has one for all."""

    def __init__(self, generator):
        self.generator = generator

    def __len__(self):
        return 21

    def __iter__(self):
        numbers = list(range(21))
        self.generator.shuffle(numbers)
        return iter(numbers)


class Counting(data.Sampler):
    """Counts its epochs where nobody sees it."""

    def __init__(self):
        self.epochs = 0

    def __len__(self):
        return 21

    def __iter__(self):
        self.epochs += 1
        numbers = list(range(21))
        random.Random(self.epochs).shuffle(numbers)
        return iter(numbers)


class Keeping(Counting):
    """Tells its state."""

    def state_dict(self):
        return {"epochs": self.epochs}

    def load_state_dict(self, state):
        self.epochs = state["epochs"]


@pytest.mark.parametrize("make", STATEFUL.values(), ids=STATEFUL)
def test_it_goes_on_from_every_batch_with_the_same_pixels(dataset, make):
    torch.manual_seed(5)
    loader = brimful.DataLoader(dataset, **{"batch_size": 5, **make(dataset)})
    list(loader)
    states, batches = [loader.state_dict()], []
    for images, numbers in loader:
        states.append(loader.state_dict())
        batches.append((images.clone(), numbers.tolist()))
    following = [numbers.tolist() for _, numbers in loader]
    for place, state in enumerate(states):
        torch.manual_seed(99)
        random.seed(99)
        numpy.random.seed(99)
        other = brimful.DataLoader(dataset, **{"batch_size": 5, **make(dataset)})
        other.load_state_dict(state)
        before = torch.random.get_rng_state()
        rest = list(other) if place < len(batches) else []
        assert [numbers.tolist() for _, numbers in rest] == [numbers for _, numbers in batches[place:]], place
        assert all(torch.equal(a, b) for (a, _), (b, _) in zip(rest, batches[place:], strict=False))
        after = torch.random.get_rng_state()
        # One draw for the seed of workers, as torch makes it; none for the order that was taken up.
        torch.random.set_rng_state(before)
        if rest:
            torch.empty((), dtype=torch.int64).random_()
        assert torch.equal(torch.random.get_rng_state(), after)
    assert len(following) == len(batches)


def test_a_sampler_that_gives_another_order_after_a_resume_is_refused(dataset):
    loader = brimful.DataLoader(dataset, 5, sampler=Counting())
    list(loader)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    other = brimful.DataLoader(dataset, 5, sampler=Counting())
    other.load_state_dict(state)
    with pytest.raises(brimful.errors.StateMismatchError, match="another order") as error:
        next(iter(other))
    assert "load_state_dict" in str(error.value)


def test_the_program_keeps_its_generators_when_an_order_is_taken_up(dataset):
    random.seed(1)
    numpy.random.seed(1)
    loader = brimful.DataLoader(dataset, 5, sampler=Shuffled(random))
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    loader.load_state_dict(state)
    random.seed(7)
    numpy.random.seed(7)
    list(loader)
    assert (random.random(), numpy.random.random()) == (random.Random(7).random(), numpy.random.RandomState(7).random())


def test_a_copy_goes_on_where_the_original_stands(dataset):
    loader = brimful.DataLoader(dataset, 4, sampler=data.WeightedRandomSampler(WEIGHTS, 24))
    batches = iter(loader)
    next(batches)
    copy = pickle.loads(pickle.dumps(loader))
    assert labels(copy) == labels(batches)


def test_another_number_of_ranks_shares_out_what_is_left(dataset):
    def loader(ranks, rank):
        sampler = data.DistributedSampler(dataset, ranks, rank, seed=3)
        return brimful.DataLoader(dataset, 4, sampler=sampler)

    seen = []
    for rank in range(2):
        first = loader(2, rank)
        batches = iter(first)
        seen += next(batches)[1].tolist() + next(batches)[1].tolist()
        state = first.state_dict()
    for rank in range(4):
        other = loader(4, rank)
        other.load_state_dict(state)
        seen += [number for batch in labels(other) for number in batch]
    assert sorted(seen) == list(range(SAMPLES))


def test_a_state_of_another_order_is_refused(dataset):
    planned = brimful.DataLoader(dataset, 4)
    driven = brimful.DataLoader(dataset, 4, sampler=[1, 2, 3])
    for mine, other in ((planned, driven), (driven, planned)):
        with pytest.raises(brimful.errors.StateMismatchError):
            mine.load_state_dict(other.state_dict())
    state = driven.state_dict()
    for draws in ([], ["no base64"], ["AAAA"], 3):
        with pytest.raises(brimful.errors.StateMismatchError, match="drew from"):
            driven.load_state_dict({**state, "sampler": {"epoch": None, "draws": draws}})


def test_set_epoch_tells_a_sampler_that_listens(dataset):
    class Turning(data.Sampler):
        epoch = 0

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter([self.epoch, self.epoch + 1])

        def __len__(self):
            return 2

    loader = brimful.DataLoader(dataset, 2, sampler=Turning())
    assert labels(loader) == [[0, 1]]
    loader.set_epoch(4)
    assert labels(loader) == [[4, 5]]


def test_an_epoch_that_a_loader_has_seen_is_saved_as_a_number(dataset):
    sampler = data.DistributedSampler(dataset, 2, 0)
    loader = brimful.DataLoader(dataset, 4, sampler=sampler)
    sampler.set_epoch(3)
    list(loader)
    copy = pickle.loads(pickle.dumps(sampler.epoch))
    assert (type(copy), copy) == (int, 3)
    file = io.BytesIO()
    torch.save({"epoch": sampler.epoch}, file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == {"epoch": 3}


def test_ready_batches_may_overtake_and_none_is_lost(dataset):
    for arguments in ({}, {"sampler": list(range(SAMPLES))}, {"shuffle": True}):
        loader = brimful.DataLoader(dataset, 5, num_workers=3, prefetch_factor=6, in_order=False, **arguments)
        for _ in range(2):
            assert sorted(number for batch in labels(loader) for number in batch) == list(range(SAMPLES))
    assert "overtakes" in str(loader.explain())


def test_threads_serve_several_epochs_and_persistent_workers_keep_the_iterator(dataset):
    loader = brimful.DataLoader(dataset, 8, num_workers=1, persistent_workers=True, sampler=range(16))
    assert loader._iterator is None
    for _ in range(3):
        assert labels(loader) == [list(range(8)), list(range(8, 16))]
    assert loader._iterator is not None


def test_a_shuffle_window_is_kept_under_a_distributed_sampler_and_the_share_is_its(dataset):
    samplers = [data.DistributedSampler(dataset, 2, rank, seed=3) for rank in range(2)]
    loaders = [brimful.DataLoader(dataset, 8, sampler=sampler, shuffle_window=1) for sampler in samplers]
    assert "through a window of 1" in str(loaders[0].explain())
    parts = [labels(loader) for loader in loaders]
    # Shard by shard: each rank has half of a shard before the next begins.
    shards = [[number // 16 for batch in part for number in batch] for part in parts]
    assert all(len(set(part[start : start + 8])) == 1 for part in shards for start in (0, 8, 16))
    assert sorted(number for part in parts for batch in part for number in batch) == list(range(SAMPLES))
    for sampler in samplers:
        sampler.set_epoch(0)
    assert [labels(loader) for loader in loaders] == parts
    for refused in (data.SubsetRandomSampler(range(9)), data.DistributedSampler(dataset, 2, 0, shuffle=False)):
        with pytest.warns(UserWarning, match="shuffle_window without effect"):
            brimful.DataLoader(dataset, sampler=refused, shuffle_window=1)
