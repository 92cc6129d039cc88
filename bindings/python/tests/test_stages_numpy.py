"""`brimful.Loader` with transforms that end in Python: NumPy arrays, with torch and without."""

from __future__ import annotations

import numpy
import pytest

import brimful
from brimful import transforms as T
from brimful.stages.collate import numpy_collate
from brimful.stages.segment import Recycler
from conftest import SAMPLES
from test_processes import run_python


def array_of(image):
    return numpy.asarray(image.convert("L"), dtype=numpy.float32)[None] / 255


def loader(pattern, *steps, **options):
    dataset = brimful.ShardDataset(pattern, fields=options.pop("fields", ("jpg", "cls", "txt")), transform=list(steps))
    return brimful.Loader(dataset, 7, num_workers=2, **options)


@pytest.mark.parametrize("stages", ["threads", "processes", "auto"])
def test_python_steps_give_arrays(pattern, stages):
    rows = loader(pattern, T.CenterCrop(64), array_of, stages=stages, shuffle=True, seed=3)
    expected = loader(pattern, T.CenterCrop(64), array_of, stages="threads")
    images = {
        label: image for batch, labels, _ in expected for image, label in zip(batch, labels.tolist(), strict=True)
    }
    seen = 0
    for batch, labels, texts in rows:
        assert (type(batch), batch.dtype, batch.shape[1:]) == (numpy.ndarray, numpy.float32, (1, 64, 64))
        assert labels.dtype == numpy.int64
        assert texts == [f"photo {label}" for label in labels]
        assert all(numpy.array_equal(image, images[label]) for image, label in zip(batch, labels, strict=True))
        seen += len(batch)
    assert seen == SAMPLES
    assert rows.stats()["python"]["samples"] == SAMPLES
    assert rows.explain().python == ("array_of", "collate_fn")
    assert rows.state_dict()["epoch"] == 1


def test_torchs_tensors_become_arrays(pattern):
    V1 = pytest.importorskip("torchvision.transforms")
    steps = [V1.CenterCrop(16), V1.Grayscale(3), V1.ToTensor()]
    images, _, _ = next(iter(loader(pattern, *steps)))
    assert (type(images), images.dtype, images.shape) == (numpy.ndarray, numpy.float32, (7, 3, 16, 16))
    assert next(iter(loader(pattern, *steps, fields="jpg"))).shape == (7, 3, 16, 16)
    named = next(iter(loader(pattern, *steps, fields={"image": "jpg", "label": "cls"})))
    assert named["label"].tolist() == list(range(7))
    erased = loader(pattern, V1.CenterCrop(16), V1.ToTensor(), V1.RandomErasing(1.0), stages="threads")
    assert next(iter(erased))[0].shape == (7, 3, 16, 16)


def test_what_does_not_go_with_python_steps_is_refused(pattern):
    for options in ({"arrays": "dlpack"}, {"dtype": "float16"}, {"layout": "NHWC"}):
        with pytest.raises(brimful.InvalidOptionError, match="ends in Python"):
            loader(pattern, array_of, **options)


def test_it_works_without_torch(pattern):
    done = run_python(
        f"""
        import sys
        sys.modules["torch"] = None
        import numpy, brimful
        from brimful import transforms as T
        def step(image):
            return numpy.asarray(image, dtype=numpy.float32)
        dataset = brimful.ShardDataset({pattern!r}, transform=[T.CenterCrop(64), step])
        for stages in ("threads", "processes"):
            total = 0
            for images, labels in brimful.Loader(dataset, 16, num_workers=2, stages=stages):
                total += labels.sum()
            print(images.shape, images.dtype, total)
        """
    )
    assert done.stdout.splitlines() == ["(16, 64, 64, 3) float32 1128"] * 2, done.stderr


def test_columns_are_collated_by_their_kind():
    take = Recycler().take
    rows = [(numpy.full((100, 200), number, numpy.int16), number, 0.5, "a", None) for number in range(4)]
    arrays, numbers, floats, texts, nothing = numpy_collate(rows, take)
    assert (arrays.shape, arrays.dtype, arrays[3, 0, 0]) == ((4, 100, 200), numpy.int16, 3)
    assert (numbers.tolist(), numbers.dtype, floats.dtype) == ([0, 1, 2, 3], numpy.int64, numpy.float64)
    assert (texts, nothing) == (["a"] * 4, [None] * 4)
    uneven = numpy_collate([numpy.zeros(3), numpy.zeros(4)], None)
    assert [row.shape for row in uneven] == [(3,), (4,)]
    assert numpy_collate([{"x": 1}, {"x": 2}], None)["x"].tolist() == [1, 2]
