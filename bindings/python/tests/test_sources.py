"""Parts of data sets, several as one, and image folders: read natively, with the samples torch would give."""

from __future__ import annotations

import pickle

import pytest

import brimful
from brimful import transforms as T
from conftest import SAMPLES, jpeg, photo, write_shard

torch = pytest.importorskip("torch")
data = torch.utils.data
CROP = T.Compose([T.CenterCrop(32), T.ToTensor()])


@pytest.fixture(scope="module")
def dataset(pattern):
    return brimful.ShardDataset(pattern, transform=CROP, index_cache=None)


@pytest.fixture(scope="module")
def others(tmp_path_factory, samples):
    """A second data set of the same kind."""
    shard = write_shard(tmp_path_factory.mktemp("others") / "others.tar", samples[10:15])
    return brimful.ShardDataset(shard, transform=CROP, index_cache=None)


def assert_as_torch(made, native=True, **arguments):
    """The same batches as torch's own loader gives over `made`."""
    loader = brimful.DataLoader(made, 4, **arguments)
    assert (loader.explain().engine == "native") == native, str(loader.explain())
    assert loader.dataset is made
    ours, theirs = list(loader), list(data.DataLoader(made, 4, **arguments))
    assert len(ours) == len(theirs) == len(loader)
    for mine, other in zip(ours, theirs, strict=True):
        assert type(mine) is type(other)
        for a, b in zip(mine, other, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert torch.equal(a, b)
    return loader


PARTS = {
    "subset": lambda a, b: data.Subset(a, [5, 3, 40, 3, -1]),
    "subset of tensors": lambda a, b: data.Subset(a, torch.tensor([7, 8, 9])),
    "nested": lambda a, b: data.Subset(data.Subset(a, range(10, 20)), [9, 0, 5]),
    "concatenated": lambda a, b: data.ConcatDataset([b, a, b]),
    "parts concatenated": lambda a, b: data.ConcatDataset([data.Subset(a, [1, 2]), b]),
    "a part of both": lambda a, b: data.Subset(data.ConcatDataset([a, b]), range(45, 53)),
    "empty": lambda a, b: data.Subset(a, []),
}


@pytest.mark.parametrize("make", PARTS.values(), ids=PARTS)
def test_parts_and_sums_of_data_sets_are_read_natively(dataset, others, make):
    made = make(dataset, others)
    assert_as_torch(made)
    if len(made):
        assert_as_torch(made, sampler=[len(made) - 1, 0, 0])


def test_random_split_is_native_and_shuffled_exactly(dataset):
    train, rest = data.random_split(dataset, [40, 8], generator=torch.Generator().manual_seed(0))
    loader = brimful.DataLoader(train, 7, shuffle=True, seed=2)
    first, second = ([label for _, batch in loader for label in batch.tolist()] for _ in range(2))
    assert loader.explain().engine == "native"
    assert sorted(first) == sorted(second) == sorted(train.indices)
    assert first != second and not set(first) & set(rest.indices)
    halves = [brimful.DataLoader(train, 7, shuffle=True, seed=2, rank=rank, world_size=2) for rank in range(2)]
    assert sorted(label for half in halves for _, batch in half for label in batch.tolist()) == sorted(train.indices)


def test_a_part_goes_on_where_it_was_left(dataset, others):
    made = data.ConcatDataset([data.Subset(dataset, range(0, 30, 2)), others])
    loader = brimful.DataLoader(made, 3, shuffle=True, seed=1)
    whole = [batch.tolist() for _, batch in loader]
    loader.set_epoch(0)
    batches = iter(loader)
    next(batches)
    copy = pickle.loads(pickle.dumps(loader))
    assert [batch.tolist() for _, batch in copy] == whole[1:]
    state = loader.state_dict()
    with pytest.raises(brimful.errors.StateMismatchError):
        brimful.DataLoader(data.Subset(dataset, range(20)), 3, shuffle=True, seed=1).load_state_dict(state)


def test_replacements_come_from_the_part_only(tmp_path, samples):
    rows = [dict(row) for row in samples[:20]]
    rows[3]["jpg"] = b"no picture"
    made = brimful.ShardDataset(write_shard(tmp_path / "a.tar", rows), transform=CROP, index_cache=None)
    part = [1, 3, 5]
    for arguments in ({}, {"shuffle": True}):
        loader = brimful.DataLoader(data.Subset(made, part), 3, on_error="replace", **arguments)
        seen = {label for _ in range(8) for _, batch in loader for label in batch.tolist()}
        assert seen <= {1, 5}
    loader = brimful.DataLoader(made, 3, sampler=data.SubsetRandomSampler(part), on_error="replace")
    assert {label for _ in range(8) for _, batch in loader for label in batch.tolist()} <= {1, 5}


def test_parts_that_differ_or_do_not_exist_go_through_torch(dataset, samples, tmp_path):
    shard = write_shard(tmp_path / "a.tar", samples[:4])
    other = brimful.ShardDataset(shard, transform=T.Compose([T.CenterCrop(32), T.PILToTensor()]), index_cache=None)
    halved = brimful.ShardDataset(shard, transform=CROP, target_transform=lambda label: label / 2, index_cache=None)
    for made, word in (
        (data.ConcatDataset([dataset, other]), "transforms"),
        (data.ConcatDataset([dataset, halved]), "target_transforms"),
        (data.Subset(dataset, [SAMPLES]), "no sample 48"),
        (data.Subset(data.TensorDataset(torch.arange(3)), [0]), "TensorDataset"),
        (data.StackDataset(dataset, dataset), "StackDataset"),
    ):
        explanation = brimful.DataLoader(made, 4).explain()
        assert explanation.engine == "torch"
        assert word in str(explanation)
    with pytest.raises(IndexError):
        list(brimful.DataLoader(data.Subset(dataset, [SAMPLES])))

    class Changed(data.Subset):
        def __getitems__(self, indices):
            return [(index, 0) for index in indices]

    assert list(brimful.DataLoader(Changed(dataset, [4]))) == list(data.DataLoader(Changed(dataset, [4])))


def test_a_stream_has_no_parts(tmp_path, samples):
    shard = write_shard(tmp_path / "a.tar", samples[:4])
    stream = brimful.ShardDataset(shard, access="stream", transform=CROP)
    with pytest.raises(brimful.InvalidOptionError, match="indexed"):
        brimful.DataLoader(data.Subset(stream, [0]))


@pytest.fixture(scope="module")
def image_folder(tmp_path_factory):
    """Photos of three classes in several formats, with what is no picture between them."""
    root = tmp_path_factory.mktemp("images")
    number = 0
    for kind, names in {
        "cats": ["b.jpg", "a.JPEG", "c.png"],
        "dogs": ["z.jpg", "y/x.bmp", "notes.txt"],
        "ants": ["1.webp", "2.tif", "3.ppm"],
    }.items():
        for name in names:
            path = root / kind / name
            path.parent.mkdir(parents=True, exist_ok=True)
            number += 1
            if name.endswith("txt"):
                path.write_text("no picture")
            elif name.lower().endswith(("jpg", "jpeg")):
                path.write_bytes(jpeg(photo(number, 90, 70)))
            else:
                options = {"lossless": True} if name.endswith("webp") else {}
                photo(number, 90, 70).save(path, **options)
    return root


@pytest.fixture(scope="module")
def torchvision():
    return pytest.importorskip("torchvision")


def plain(torchvision):
    steps = torchvision.transforms
    return steps.Compose([steps.CenterCrop(48), steps.ToTensor()])


def test_an_image_folder_gives_torchvisions_pixels_and_classes(image_folder, torchvision):
    folder = torchvision.datasets.ImageFolder(image_folder, plain(torchvision))
    is_exact = "turbo" in brimful._native.jpeg_backends
    loader = brimful.DataLoader(folder, 3)
    assert loader.explain().engine == "native"
    assert "files of a folder" in str(loader.explain())
    for mine, other in zip(loader, data.DataLoader(folder, 3), strict=True):
        assert torch.equal(mine[1], other[1])
        assert (mine[0] - other[0]).abs().max() <= (0 if is_exact else 4 / 255)
    assert len(loader) == 3
    shuffled = brimful.DataLoader(folder, 4, shuffle=True, seed=1, drop_last=True)
    assert len(list(shuffled)) == len(shuffled) == 2


def test_what_is_valid_and_what_becomes_of_classes_is_the_folders_to_say(image_folder, torchvision):
    folder = torchvision.datasets.ImageFolder(
        str(image_folder),
        plain(torchvision),
        target_transform=lambda number: number * 10,
        is_valid_file=lambda path: path.endswith("jpg") or path.endswith("webp"),
    )
    loader = brimful.DataLoader(folder, 10)
    [[_, classes]] = loader
    assert classes.tolist() == [number * 10 for _, number in folder.samples]
    assert (loader.explain().engine, loader.explain().python) == ("native", ("target_transform",))
    general = torchvision.datasets.DatasetFolder(
        str(image_folder), torchvision.datasets.folder.default_loader, (".png",), plain(torchvision), allow_empty=True
    )
    [[images, classes]] = brimful.DataLoader(general)
    assert (images.shape, classes.tolist()) == ((1, 3, 48, 48), [general.class_to_idx["cats"]])


def test_parts_of_image_folders_and_samplers_over_them(image_folder, torchvision):
    folder = torchvision.datasets.ImageFolder(str(image_folder), plain(torchvision))
    assert_as_torch(data.Subset(folder, [6, 0, 2]))
    assert_as_torch(data.ConcatDataset([folder, data.Subset(folder, [1])]))
    assert_as_torch(folder, sampler=data.SubsetRandomSampler([2, 4], generator=torch.Generator().manual_seed(1)))
    copy = pickle.loads(pickle.dumps(brimful.DataLoader(folder, 4)))
    assert [batch.tolist() for _, batch in copy] == [batch.tolist() for _, batch in brimful.DataLoader(folder, 4)]


def test_a_data_set_that_is_changed_later_is_read_as_it_is_then(dataset, image_folder, torchvision):
    subset = data.Subset(dataset, list(range(10)))
    made = data.ConcatDataset([subset, dataset])
    for arguments in ({}, {"shuffle": True}, {"rank": 0, "world_size": 1}):
        subset.indices = list(range(10))
        loader = brimful.DataLoader(subset, 4, **arguments)
        assert sorted(label for _, batch in loader for label in batch.tolist()) == list(range(10))
        subset.indices = [20, 21]
        assert len(loader) == len(list(loader.batch_sampler)) == 1
        assert sorted(label for _, batch in loader for label in batch.tolist()) == [20, 21]
        subset.indices.append(22)
        assert sorted(label for _, batch in loader for label in batch.tolist()) == [20, 21, 22]
    loader = brimful.DataLoader(made, 64)
    made.datasets[0].indices = [1]
    made.cumulative_sizes = made.cumsum(made.datasets)
    [[_, labels]] = loader
    assert labels.tolist() == [1, *range(SAMPLES)]
    folder = torchvision.datasets.ImageFolder(str(image_folder), plain(torchvision))
    loader = brimful.DataLoader(folder, 20)
    epochs = [loader.state_dict()["epoch"]]
    next(iter(loader))
    folder.samples = folder.samples[:2]
    assert [len(labels) for _, labels in loader] == [2]
    assert loader.state_dict()["epoch"] == epochs[0] + 2
    folder.transform = torchvision.transforms.ToTensor()
    with pytest.raises(brimful.InvalidOptionError, match="make the loader anew"):
        iter(loader)


def test_folders_that_make_samples_their_own_way_go_through_torch(image_folder, torchvision):
    folders = torchvision.datasets

    class Indexed(folders.ImageFolder):
        def __getitem__(self, index):
            return (*super().__getitem__(index), index)

    class Renamed(folders.ImageFolder):
        def find_classes(self, directory):
            return ["dogs"], {"dogs": 7}

    assert_as_torch(Indexed(str(image_folder), plain(torchvision)), native=False)
    assert_as_torch(Renamed(str(image_folder), plain(torchvision)))
    opened = folders.ImageFolder(str(image_folder), plain(torchvision), loader=lambda path: photo(1))
    assert_as_torch(opened, native=False)
    pictures = folders.ImageFolder(str(image_folder))
    with pytest.raises(TypeError):
        list(brimful.DataLoader(pictures))
    assert "makes no tensors" in str(brimful.DataLoader(pictures).explain())


def test_a_damaged_file_is_named_and_may_be_left_out(tmp_path, torchvision):
    for number in range(6):
        path = tmp_path / "a" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(jpeg(photo(number)))
    path.write_bytes(path.read_bytes()[:-200])
    folder = torchvision.datasets.ImageFolder(str(tmp_path), plain(torchvision))
    with pytest.raises(brimful.BrimfulError, match="5.jpg"):
        list(brimful.DataLoader(folder, 3))
    loader = brimful.DataLoader(folder, 6, on_error="skip")
    with pytest.warns(brimful.DataWarning, match="5.jpg"):
        [[images, _]] = loader
    assert len(images) == 5
    (tmp_path / "a" / "0.jpg").unlink()
    with pytest.raises(brimful.NotFoundError, match="0.jpg"):
        list(brimful.DataLoader(folder, 3))
