"""ShardDataset as a map-style data set."""

from __future__ import annotations

import os
import pickle

import numpy
import pytest

import brimful
from brimful import transforms as T
from conftest import SAMPLES, SHARDS, jpeg, photo, sample, write_shard

torch = pytest.importorskip("torch")


def test_samples_are_numbered_in_shard_order(pattern):
    dataset = brimful.ShardDataset(pattern, fields=("cls", "txt", "__key__"))
    assert len(dataset) == SAMPLES
    assert dataset[0] == (0, "photo 0", "0000")
    assert dataset[-1] == (SAMPLES - 1, f"photo {SAMPLES - 1}", f"{SAMPLES - 1:04d}")
    assert dataset[numpy.int64(3)][0] == 3
    assert [row[0] for row in dataset.__getitems__([5, 2, -2])] == [5, 2, SAMPLES - 2]
    assert dataset.key(7) == "0007"
    assert len(dataset.paths) == SHARDS


def test_numbers_that_do_not_exist_raise_index_error(pattern):
    dataset = brimful.ShardDataset(pattern, fields="cls")
    for index in (SAMPLES, -SAMPLES - 1):
        with pytest.raises(IndexError):
            dataset[index]
    with pytest.raises(TypeError):
        dataset["0"]
    assert list(dataset) == list(range(SAMPLES))


def test_values_have_their_natural_types(pattern, samples):
    fields = ("jpg", "cls", "json", "json:label", "jpg:bytes", "__url__")
    image, label, document, path, data, url = brimful.ShardDataset(pattern, fields=fields)[9]
    assert (image.dtype, tuple(image.shape)) == (torch.uint8, (3, 120, 160))
    assert (label, path) == (9, 9)
    assert type(label) is int
    assert document == {"label": 9, "tags": ["a", 9]}
    assert data == samples[9]["jpg"]
    assert url.endswith("train-000.tar")


def test_a_field_given_as_a_string_makes_bare_samples(pattern):
    dataset = brimful.ShardDataset(pattern, fields="cls", target_transform=lambda label: label + 100)
    assert dataset[4] == 104


def test_images_of_unequal_size_are_separate_samples(tmp_path):
    shard = write_shard(tmp_path / "a.tar", [sample(0), sample(1, width=90)])
    (first, _), (second, _) = brimful.ShardDataset(shard).__getitems__([0, 1])
    assert (first.shape[2], second.shape[2]) == (160, 90)


def test_random_augmentation_follows_torchs_seed_and_changes_between_calls(pattern):
    dataset = brimful.ShardDataset(pattern, fields="jpg", transform=T.RandomResizedCrop(32))
    torch.manual_seed(3)
    first, second = dataset[0], dataset[0]
    torch.manual_seed(3)
    assert torch.equal(first, dataset[0])
    assert not torch.equal(first, second)


def test_a_python_transform_gets_a_pil_image_or_a_tensor(pattern):
    seen = []

    def look(image):
        seen.append(type(image).__module__ + "." + type(image).__name__)
        return 1

    brimful.ShardDataset(pattern, fields="jpg", transform=[T.CenterCrop(32), look])[0]
    brimful.ShardDataset(pattern, fields="jpg", transform=[T.CenterCrop(32), T.ToTensor(), look])[0]
    assert seen == ["PIL.Image.Image", "torch.Tensor"]


def test_it_is_pickled_as_patterns_and_options(pattern):
    dataset = brimful.ShardDataset(pattern, transform=T.Compose([T.CenterCrop(32), T.ToTensor()]))
    data = pickle.dumps(dataset)
    assert len(data) < 2000
    copy = pickle.loads(data)
    assert torch.equal(copy[3][0], dataset[3][0])


def test_a_copy_notices_that_the_shards_are_others(tmp_path):
    shard = write_shard(tmp_path / "a.tar", [sample(0), sample(1)])
    data = pickle.dumps(brimful.ShardDataset(shard))
    write_shard(shard, [sample(0), sample(1), sample(2)])
    with pytest.raises(brimful.ShardChangedError):
        len(pickle.loads(data))


def test_indexes_are_kept_where_they_should_be(pattern, own_cache, tmp_path):
    brimful.ShardDataset(pattern, index_cache=None)
    assert not own_cache.exists()
    brimful.ShardDataset(pattern)
    assert any((own_cache / "brimful").rglob("*"))
    brimful.ShardDataset(pattern, index_cache=tmp_path / "mine")
    assert any((tmp_path / "mine").rglob("*"))


def test_grey_and_other_formats(tmp_path):
    import io

    png = io.BytesIO()
    photo(1).save(png, "PNG")
    shard = write_shard(
        tmp_path / "a.tar",
        [{"__key__": b"a", "png": png.getvalue()}, {"__key__": b"b", "jpg": jpeg(photo(2))}],
    )
    rgb = brimful.ShardDataset(shard, fields="jpg;png")
    assert numpy.array_equal(rgb[0].numpy().transpose(1, 2, 0), numpy.asarray(photo(1)))
    grey = brimful.ShardDataset(shard, fields="jpg;png", mode="L")
    assert tuple(grey[1].shape) == (1, 120, 160)


def test_a_stream_has_no_length_and_no_random_access(tmp_path):
    import gzip

    plain = write_shard(tmp_path / "a.tar", [sample(n) for n in range(4)])
    packed = tmp_path / "b.tar.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    dataset = brimful.ShardDataset(packed, fields="cls")
    assert dataset.is_stream
    for use in (len, lambda d: d[0]):
        with pytest.raises(TypeError, match="indexed"):
            use(dataset)
    assert list(brimful.ShardDataset(packed, fields="cls", access="indexed")) == [0, 1, 2, 3]
    for loader in (brimful.Loader(dataset, 3), brimful.DataLoader(dataset, 3, shuffle=True)):
        with pytest.raises(TypeError, match="length"):
            len(loader)
        assert sorted(int(label) for batch in loader for label in batch) == [0, 1, 2, 3]


@pytest.mark.parametrize("access", ["indexed", "stream"])
def test_keys_and_paths_that_are_no_text_come_as_fsdecode_gives_them(tmp_path, access):
    name = os.fsdecode(b"caf\xe9")
    shard = write_shard(tmp_path / f"{name}.tar", [{"__key__": b"caf\xe9", "cls": b"1"}])
    dataset = brimful.ShardDataset(tmp_path, fields=("__key__", "__url__"), access=access)
    [(keys, urls)] = brimful.Loader(dataset, 2)
    assert (keys, urls) == ([name], [str(shard)])
    assert os.fsencode(keys[0]) == b"caf\xe9"
    if access == "indexed":
        assert dataset[0] == (name, str(shard))
        assert dataset.key(0) == name


def test_a_mapping_of_fields_makes_mappings(pattern):
    fields = {"pixel_values": "jpg", "labels": "cls"}
    dataset = brimful.ShardDataset(pattern, fields, T.Compose([T.CenterCrop(16), T.ToTensor()]))
    assert list(dataset[3]) == ["pixel_values", "labels"]
    assert dataset[3]["labels"] == 3
    assert dataset.with_options(fields={"x": "cls"})[3] == {"x": 3}
    batch = next(iter(brimful.Loader(dataset, 4)))
    assert (list(batch), batch["labels"].tolist()) == (list(fields), [0, 1, 2, 3])
    torch = pytest.importorskip("torch")
    native = next(iter(brimful.DataLoader(dataset, 4)))
    plain = next(iter(torch.utils.data.DataLoader(dataset, 4)))
    assert list(native) == list(plain) == list(fields)
    assert all(torch.equal(native[name], plain[name]) for name in fields)
