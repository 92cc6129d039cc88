"""Randomness of Python steps: the same seed and epoch give the same pixels, wherever and beside whom they are made."""

from __future__ import annotations

import random
import threading

import numpy
import pytest

import brimful
from brimful.stages import draws
from brimful.stages.draws import GlobalDraw, Source, source_of
from conftest import SAMPLES

torch = pytest.importorskip("torch")
V1 = pytest.importorskip("torchvision.transforms")
V2 = pytest.importorskip("torchvision.transforms.v2")

from brimful.stages.torch_draws import ThreadGenerator  # noqa: E402 - needs torch


def noisy(image):
    """Draws from all three global generators."""
    shift = random.randrange(64) + numpy.random.randint(64) + int(torch.randint(64, ()))
    return image.point(lambda value: (value + shift) % 256)


def mixed(samples):
    images, labels = torch.utils.data.default_collate(samples)
    share = torch.rand(()) + random.random()
    return images * share, labels


RECIPES = {
    "torchvision": [V1.TrivialAugmentWide(), V1.ColorJitter(0.4, 0.4, 0.4), V1.ToTensor(), V1.RandomErasing(0.5)],
    "function": [noisy, V1.ToTensor()],
    "choice": [V1.RandomChoice([V1.Grayscale(3), V1.RandomInvert(0.5)]), V1.ToTensor()],
    "v2": [V2.RandAugment(), V2.ToImage(), V2.ToDtype(torch.float32, scale=True), V2.GaussianNoise()],
}


def pixels(pattern, recipe, *, batch_size=5, epoch=0, **options):
    """Images by label, of one epoch."""
    transform = V1.Compose([V1.RandomResizedCrop(24), V1.RandomHorizontalFlip(), *RECIPES[recipe]])
    dataset = brimful.ShardDataset(pattern, transform=transform)
    loader = brimful.DataLoader(dataset, batch_size, shuffle=True, **{"seed": 3, "num_workers": 2, **options})
    loader.set_epoch(epoch)
    found = {label: image for images, labels in loader for image, label in zip(images, labels.tolist(), strict=True)}
    return found, loader


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[label], right[label]) for label in left)


@pytest.mark.parametrize("recipe", ["torchvision", "function", "v2"])
def test_pixels_depend_on_seed_epoch_and_sample_alone(pattern, recipe):
    expected, _ = pixels(pattern, recipe, stages="processes")
    assert len(expected) == SAMPLES
    for options in (
        {"stages": "processes", "num_workers": 1, "batch_size": 3},
        {"stages": "threads", "num_workers": 3, "batch_size": 7},
        {"num_workers": 0},
        {},
    ):
        assert same(pixels(pattern, recipe, **options)[0], expected), options
    ranks = [pixels(pattern, recipe, stages="threads", rank=rank, world_size=2)[0] for rank in range(2)]
    assert same(ranks[0] | ranks[1], dict(sorted(expected.items(), key=lambda item: item[0] in ranks[1])))
    others = [pixels(pattern, recipe, stages="threads", **other)[0] for other in ({"epoch": 1}, {"seed": 4})]
    for other in others:
        assert sum(not torch.equal(other[label], expected[label]) for label in expected) > SAMPLES // 2


def test_the_programs_own_generators_are_left_alone(pattern):
    for stages in ("threads", "processes"):
        for recipe in ("torchvision", "function", "choice"):
            draws.seed_globals(5)
            expected = random.random(), numpy.random.random(), torch.rand(()).item()
            draws.seed_globals(5)
            pixels(pattern, recipe, stages=stages)
            assert (random.random(), numpy.random.random(), torch.rand(()).item()) == expected, (stages, recipe)


def test_a_collate_function_draws_the_same_everywhere(pattern):
    transform = V1.Compose([V1.CenterCrop(16), V1.ToTensor()])

    def batches(**options):
        dataset = brimful.ShardDataset(pattern, transform=transform)
        return [images for images, _ in brimful.DataLoader(dataset, 6, collate_fn=mixed, seed=1, **options)]

    expected = batches(stages="processes", num_workers=2)
    for options in ({"stages": "threads", "num_workers": 3}, {"num_workers": 0}, {"num_workers": 2}):
        assert all(torch.equal(a, b) for a, b in zip(batches(**options), expected, strict=True)), options


def test_steps_that_share_generators_get_processes_of_their_own(pattern):
    _, known = pixels(pattern, "choice")
    assert known.stats()["python"]["where"] == "processes"
    assert "RandomChoice draws from generators that threads share" in str(known.explain())
    _, seen = pixels(pattern, "function")
    assert seen.stats()["python"]["where"] == "processes"
    assert "noisy" in seen.stats()["python"]["why"]
    _, alone = pixels(pattern, "function", num_workers=0)
    assert alone.stats()["python"]["draws"] == "locked"
    assert "one at a time" in str(alone.explain())
    _, torch_alone = pixels(pattern, "torchvision", stages="threads")
    assert torch_alone.stats()["python"]["draws"] == "led"


@pytest.mark.parametrize(
    ("step", "source"),
    [
        (V1.ToTensor(), Source.NONE),
        (V1.Compose([V1.Resize(8), V1.ColorJitter()]), Source.TORCH),
        (V1.RandomApply([V1.Grayscale()]), Source.TORCH),
        (V1.RandomApply([noisy]), Source.UNKNOWN),
        (V1.Lambda(noisy), Source.UNKNOWN),
        (V1.RandomOrder([V1.Grayscale()]), Source.GLOBAL),
        (V1.AugMix(), Source.GLOBAL),
        (V2.RandomChoice([V2.Grayscale()]), Source.TORCH),
        (V2.MixUp(num_classes=3), Source.GLOBAL),
        (torch.utils.data.default_collate, Source.UNKNOWN),
        (noisy, Source.UNKNOWN),
    ],
)
def test_what_steps_draw_from_is_told_by_their_types(step, source):
    assert source_of(step) == source


FUNCTIONS = {
    "rand": lambda: torch.rand(3, 2),
    "randn": lambda: torch.randn(3),
    "randint": lambda: torch.randint(2, 9, (5,)),
    "randperm": lambda: torch.randperm(20),
    "normal": lambda: torch.normal(0.0, 1.0, (4,)),
    "bernoulli": lambda: torch.bernoulli(torch.full((9,), 0.5)),
    "multinomial": lambda: torch.multinomial(torch.ones(30), 10),
    "rand_like": lambda: torch.rand_like(torch.ones(3, 2)),
    "randn_like": lambda: torch.randn_like(torch.ones(3), dtype=torch.float64),
    "randint_like": lambda: torch.randint_like(torch.ones(9), 2, 50),
    "randint_like high": lambda: torch.randint_like(torch.ones(9), high=50),
    "uniform_": lambda: torch.empty(6).uniform_(1, 2),
    "random_": lambda: torch.empty(6).random_(100),
    "exponential_": lambda: torch.empty(6).exponential_(),
    "poisson": lambda: torch.poisson(torch.full((6,), 4.0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_draws_led_to_a_generator_of_the_thread_are_those_of_the_global_one(name):
    torch.manual_seed(77)
    expected = FUNCTIONS[name]()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    mode = ThreadGenerator()
    with mode:
        mode.seed(77)
        got = FUNCTIONS[name]()
    assert torch.equal(got, expected)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.nn.functional.dropout(torch.ones(3)),
        lambda: torch.dropout(torch.ones(3), 0.5, True),
        lambda: torch.distributions.Beta(1.0, 1.0).sample(),
    ],
)
def test_draws_that_cannot_be_led_are_refused(draw):
    mode = ThreadGenerator()
    with pytest.raises(GlobalDraw), mode:
        mode.seed(1)
        draw()


def test_a_watch_sees_every_global_generator():
    for draw in (random.random, numpy.random.random, lambda: torch.default_generator.seed()):
        watch = draws.Watched()
        with pytest.raises(GlobalDraw), watch.batch(), watch.sample(1):
            draw()
    watch = draws.Watched()
    for _ in range(2):
        with watch.batch(), watch.sample(1), watch.step(Source.UNKNOWN):
            torch.rand(3)
    with pytest.raises(GlobalDraw), watch.batch(), watch.sample(1):
        random.random()


def test_a_watch_does_not_undo_what_another_thread_draws_in_turn():
    """One thread ends a watched batch in the middle of another's locked sample."""
    locked, watch = draws.Locked(), draws.Watched()
    with locked.sample(7):
        expected = [random.random() for _ in range(3)]
    inside, ended = threading.Event(), threading.Event()

    def watched():
        with watch.batch():
            for _ in range(2):
                with watch.sample(1):
                    pass
            inside.set()
            began.wait()
        ended.set()

    began = threading.Event()
    thread = threading.Thread(target=watched)
    thread.start()
    inside.wait()
    with locked.sample(7):
        got = [random.random()]
        began.set()
        assert not ended.wait(0.2)
        got += [random.random() for _ in range(2)]
    thread.join()
    assert got == expected
    assert ended.is_set()


def test_functions_that_draw_in_several_threads_leave_the_programs_generators_alone():
    draws.seed_globals(5)
    expected = random.random()
    draws.seed_globals(5)
    watches = [draws.Watched() for _ in range(4)]
    barrier = threading.Barrier(len(watches))
    found = []

    def watched(watch):
        try:
            with watch.batch():
                with watch.sample(1):
                    pass
                barrier.wait()
                with watch.sample(2):
                    random.random()
                barrier.wait()
        except GlobalDraw:
            found.append(watch)

    threads = [threading.Thread(target=watched, args=(watch,)) for watch in watches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(watches)
    assert random.random() == expected
