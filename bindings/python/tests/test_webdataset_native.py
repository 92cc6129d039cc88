"""The native part of webdataset pipelines gives what the stages give one by one, and says where it ends."""

from __future__ import annotations

import io
import pickle
import runpy
import tarfile
import warnings
from pathlib import Path

import numpy
import pytest
from PIL import Image

import brimful.webdataset as wds
from conftest import jpeg, photo, sample, write_shard

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def assert_same(mine, theirs, tolerance=0.0):
    assert type(mine) is type(theirs)
    if isinstance(mine, (tuple, list)):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs):
            assert_same(one, other, tolerance)
    elif isinstance(mine, (numpy.ndarray, torch.Tensor)):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        difference = numpy.abs(numpy.asarray(mine, dtype=float) - numpy.asarray(theirs, dtype=float))
        assert difference.max(initial=0) <= tolerance
    elif isinstance(mine, Image.Image):
        assert mine.mode == theirs.mode
        assert_same(numpy.asarray(mine), numpy.asarray(theirs), tolerance)
    else:
        assert mine == theirs


def add_one(number):
    return number + 1


def transform():
    transforms = pytest.importorskip("torchvision.transforms")
    steps = [
        transforms.Resize(32),
        transforms.CenterCrop(24),
        transforms.ToTensor(),
        transforms.Normalize([0.5], [0.2]),
    ]
    return transforms.Compose(steps)


def half_native():
    transforms = pytest.importorskip("torchvision.transforms")
    return transforms.Compose([transforms.Resize((20, 30)), turned, transforms.ToTensor()])


def turned(image):
    return image.rotate(90, expand=True)


PIPELINES = {
    "undecoded": lambda ds: ds.to_tuple("jpg", "cls", "__key__"),
    "numbers and texts": lambda ds: ds.decode().to_tuple("cls", "txt", "json"),
    "pictures as bytes": lambda ds: ds.decode().to_tuple("jpg", "cls"),
    **{
        spec: lambda ds, spec=spec: ds.decode(spec).to_tuple("png;jpg", "cls")
        for spec in ("rgb8", "rgb", "torchrgb8", "torchrgb", "torch", "pil", "pilrgb")
    },
    "names in one string": lambda ds: ds.decode("rgb8").to_tuple("png;jpg cls"),
    "transform": lambda ds: ds.decode("pil").to_tuple("jpg", "cls").map_tuple(transform(), None),
    "transform, batched": lambda ds: ds.decode("pil").to_tuple("jpg", "cls").map_tuple(transform()).batched(7),
    "a function of labels": lambda ds: ds.decode().to_tuple("txt", "cls").map_tuple(None, add_one).batched(7),
    "no last batch": lambda ds: (
        ds.decode("pil").to_tuple("jpg", "cls").map_tuple(transform()).batched(7, partial=False)
    ),
    "rename and map_dict": lambda ds: (
        ds.decode("pil").rename(image="png;jpg", label="cls").map_dict(image=transform()).to_tuple("image", "label")
    ),
    "half a transform": lambda ds: ds.decode("pil").to_tuple("jpg", "cls").map_tuple(half_native()).batched(5),
    "equal pictures in batches": lambda ds: ds.decode("torchrgb").to_tuple("jpg", "cls").batched(5),
    "stages behind": lambda ds: ds.decode().to_tuple("cls").map(lambda row: (row[0] * 2,)).batched(3),
    "handlers that go on": lambda ds: (
        ds.decode("rgb8", handler=wds.warn_and_continue)
        .to_tuple("jpg", "cls", handler=wds.warn_and_continue)
        .batched(4)
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_native_pipeline_gives_what_its_stages_give(pattern, name):
    handler = wds.warn_and_continue if "handlers" in name else wds.reraise_exception
    native = PIPELINES[name](wds.WebDataset(pattern, shardshuffle=False, handler=handler))
    staged = PIPELINES[name](wds.WebDataset(pattern, shardshuffle=False, handler=handler, compat="strict"))
    explained = native.explain()
    assert explained.engine == "native", explained
    assert staged.explain().engine == "python"
    # Resampling may round one of 255 steps another way, which normalising makes a fifth of.
    is_resized = bool({"Resize"} & set(explained.native))
    tolerance = 1.01 / 255 / 0.2 if is_resized else 0.0
    first, second = list(native), list(native)
    assert_same(first, list(staged), tolerance)
    assert_same(first, second)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda ds: ds, "to_tuple"),
        (lambda ds: ds.decode("l8").to_tuple("jpg"), "'l8'"),
        (lambda ds: ds.decode("pil", only="jpg").to_tuple("jpg"), "only"),
        (lambda ds: ds.decode("pil").select(bool).to_tuple("jpg"), "select"),
        (lambda ds: ds.decode("pil").to_tuple("jpg", missing_is_error=False), "missing_is_error"),
        (lambda ds: ds.decode(wds.handle_extension("jpg", len)).to_tuple("jpg"), "decoder"),
        (lambda ds: ds.decode().to_tuple("pyd"), "pyd"),
        (lambda ds: ds.decode("pil").to_tuple("jpg", handler=wds.ignore_and_stop), "ignore_and_stop"),
    ],
)
def test_what_has_no_native_form_runs_in_python_and_is_told(pattern, build, reason):
    explained = build(wds.WebDataset(pattern, shardshuffle=False)).explain()
    assert explained.engine == "python"
    assert reason in explained.reasons[0]


def test_stages_that_are_not_recognised_follow_the_native_ones(pattern):
    ds = wds.WebDataset(pattern, shardshuffle=False).decode().to_tuple("cls").batched(4, collation_fn=None).unlisted()
    assert ds.explain().native[-1] == "to_tuple(cls)"
    assert ds.explain().python == ("batched", "unlisted")
    assert [label for (label,) in ds] == list(range(48))


def test_a_pipeline_built_by_hand_is_recognised(pattern):
    ds = wds.DataPipeline(
        wds.SimpleShardList(pattern),
        wds.shuffle(3),
        wds.split_by_worker,
        wds.tarfile_to_samples(),
        wds.shuffle(100),
        wds.decode("rgb8"),
        wds.to_tuple("jpg", "cls"),
    )
    # The splitter comes after the shuffle of shards, which has a native form in the other order only.
    assert ds.explain().engine == "python"
    assert sorted(label for _, label in ds) == list(range(48))
    del ds.pipeline[1]
    assert ds.explain().engine == "native"
    assert sorted(label for _, label in ds) == list(range(48))


def test_each_epoch_is_shuffled_anew_and_the_same_seed_gives_the_same_epochs(pattern):
    def labels(seed):
        ds = wds.WebDataset(pattern, shardshuffle=3, seed=seed).shuffle(100).decode().to_tuple("cls")
        return [[label for (label,) in ds] for _ in range(2)]

    first, second = labels(1)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(48))
    assert [first, second] == labels(1) != labels(2)


def test_shuffled_shards_keep_the_order_of_their_samples(pattern):
    ds = wds.WebDataset(pattern, shardshuffle=3, seed=1).decode().to_tuple("cls")
    assert ds.explain().engine == "native"
    orders = [[label for (label,) in ds] for _ in range(6)]
    for labels in orders:
        shards = [labels[start : start + 16] for start in range(0, 48, 16)]
        assert all(shard == list(range(shard[0], shard[0] + 16)) for shard in shards)
        assert sorted(labels) == list(range(48))
    assert len({tuple(labels) for labels in orders}) > 1


def test_resampled_shards_come_once_a_round(pattern):
    ds = wds.WebDataset(pattern, resampled=True).decode().to_tuple("cls").with_epoch(48)
    assert ds.explain().engine == "native"
    for _ in range(3):
        assert sorted(label for (label,) in ds) == list(range(48))


def test_ranks_get_equal_numbers_of_samples(pattern, monkeypatch):
    seen = []
    for rank in range(5):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "5")
        splitter = {"nodesplitter": wds.split_by_node}
        ds = wds.WebDataset(pattern, shardshuffle=3, **splitter).shuffle(100).decode().to_tuple("cls")
        seen.append([label for (label,) in ds])
    assert {len(labels) for labels in seen} == {10}
    assert set(sum(seen, [])) == set(range(48))


def test_a_loader_over_a_native_pipeline_needs_no_processes(pattern):
    ds = wds.WebDataset(pattern, shardshuffle=3, seed=0).shuffle(100).decode("pil").to_tuple("jpg", "cls")
    ds = ds.map_tuple(transform()).batched(8)
    loader = wds.WebLoader(ds, batch_size=None, num_workers=2)
    assert "2 threads in place of worker processes" in loader.explain().notes
    batches = list(loader)
    assert [type(part) for part in batches[0]] == [torch.Tensor, torch.Tensor]
    assert sorted(torch.cat([labels for _, labels in batches]).tolist()) == list(range(48))
    unbatched = loader.unbatched().shuffle(10).batched(6)
    assert unbatched.explain().python == ("unbatched", "shuffle", "batched")
    assert [len(labels) for _, labels in unbatched] == [6] * 8


def test_a_loader_that_makes_batches_gives_what_torch_gives(pattern):
    ds = wds.WebDataset(pattern, shardshuffle=False).decode("torchrgb8").to_tuple("jpg", "cls", "txt")
    arguments = {"batch_size": 10, "drop_last": True}
    native = wds.WebLoader(ds, num_workers=2, **arguments)
    assert native.explain().engine == "native"
    assert_same(list(native), list(torch.utils.data.DataLoader(ds, **arguments)))


def test_epochs_of_a_loader_go_on_where_the_last_one_ended(pattern):
    ds = wds.WebDataset(pattern, shardshuffle=False).decode().to_tuple("cls").with_epoch(10)
    loader = wds.WebLoader(ds, batch_size=None, num_workers=2)
    epochs = [[int(label) for (label,) in loader] for _ in range(3)]
    assert epochs == [list(range(20)), list(range(20, 40)), [*range(40, 48), *range(12)]]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_epochs_of_a_loader_have_as_many_batches_as_torchs_workers_give(pattern, workers, drop_last):
    arguments = {"batch_size": 4, "num_workers": workers, "drop_last": drop_last}

    def dataset(**options):
        ds = wds.WebDataset(pattern, shardshuffle=False, **options).decode("torchrgb8")
        return ds.to_tuple("jpg", "cls", "txt").with_epoch(10)

    loader = wds.WebLoader(dataset(), **arguments)
    assert loader.explain().engine == "native"
    epochs = [list(loader) for _ in range(7)]
    theirs = list(torch.utils.data.DataLoader(dataset(compat="strict"), **arguments))
    for batches in epochs:
        assert [len(labels) for _, labels, _ in batches] == [len(labels) for _, labels, _ in theirs]
        assert all(len(image) == len(texts) == len(labels) for image, labels, texts in batches)
    if not drop_last:
        labels = [label for batches in epochs for _, numbers, _ in batches for label in numbers.tolist()]
        assert labels == [number % 48 for number in range(len(labels))]
    assert_same([type(part) for part in epochs[0][0]], [type(part) for part in theirs[0]])


def test_epochs_of_a_loader_go_on_after_one_that_failed(pattern):
    failures = [KeyError("once")]

    def fails_once(label):
        if label == 5 and failures:
            raise failures.pop()
        return label

    ds = wds.WebDataset(pattern, shardshuffle=False).decode().to_tuple("cls").map_tuple(fails_once).with_epoch(10)
    loader = wds.WebLoader(ds, batch_size=None, num_workers=1)
    assert loader.explain().engine == "native"
    with pytest.raises(KeyError):
        list(loader)
    assert [[int(label) for (label,) in loader] for _ in range(2)] == [list(range(10)), list(range(10, 20))]


def test_worker_processes_of_torch_share_the_shards_out(pattern):
    ds = wds.WebDataset(pattern, shardshuffle=3).shuffle(100).decode("pil").to_tuple("jpg", "cls")
    loader = torch.utils.data.DataLoader(ds.map_tuple(transform()).batched(4), batch_size=None, num_workers=2)
    epochs = [torch.cat([labels for _, labels in loader]).tolist() for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(48))
    assert epochs[0] != epochs[1]


def test_a_native_pipeline_can_be_pickled_while_it_runs(pattern):
    ds = wds.WebDataset(pattern, shardshuffle=False).decode().to_tuple("cls").batched(4)
    running = iter(ds)
    next(running)
    copy = pickle.loads(pickle.dumps(ds))
    assert len(list(copy)) == 12
    assert len(list(running)) == 11


def broken(folder, number):
    """Two shards, of which the first has something wrong."""
    good = write_shard(folder / "good.tar", [sample(n) for n in range(4)])
    bad = folder / "bad.tar"
    rows = [sample(n) for n in range(4, 8)]
    if number == "picture":
        rows[1]["jpg"] = b"no picture at all"
    elif number == "label":
        rows[1]["cls"] = b"seven"
    elif number == "field":
        del rows[1]["cls"]
    if number != "missing":
        write_shard(bad, rows)
    if number == "cut":
        bad.write_bytes(bad.read_bytes()[:-11000])
    elif number == "junk":
        bad.write_bytes(b"this is no archive" * 1000)
    return f"{bad}::{good}"


@pytest.mark.parametrize(
    ("fault", "error", "left"),
    [
        ("picture", wds.DecodingError, 7),
        ("label", wds.DecodingError, 7),
        ("field", ValueError, 7),
        ("cut", tarfile.ReadError, 7),
        ("junk", tarfile.ReadError, 4),
        ("missing", FileNotFoundError, 4),
    ],
)
def test_faults_raise_what_webdataset_raises_or_are_passed_over(tmp_path, fault, error, left):
    urls = broken(tmp_path, fault)

    def pipeline(handler):
        ds = wds.WebDataset(urls, shardshuffle=False, handler=handler).decode("rgb8", handler=handler)
        return ds.to_tuple("jpg", "cls", handler=handler)

    assert pipeline(wds.reraise_exception).explain().engine == "native"
    with pytest.raises(error):
        list(pipeline(wds.reraise_exception))
    assert len(list(pipeline(wds.ignore_and_continue))) == left


def fails_on_three(number):
    if number == 3:
        raise KeyError("three")
    return number


def test_what_functions_raise_goes_to_their_handler_after_the_samples_before_it(pattern):
    def pipeline(stage, handler):
        options = {"handler": handler}
        ds = wds.WebDataset(pattern, shardshuffle=False, **options).decode(**options)
        if stage == "map_dict":
            return ds.map_dict(cls=fails_on_three, **options).to_tuple("cls", **options)
        return ds.to_tuple("cls", **options).map_tuple(fails_on_three, **options)

    for stage in ("map_dict", "map_tuple"):
        going_on = pipeline(stage, wds.warn_and_continue)
        assert going_on.explain().engine == "native"
        with pytest.warns(UserWarning, match="three"):
            assert [label for (label,) in going_on] == [0, 1, 2, *range(4, 48)]
        rows = iter(pipeline(stage, wds.reraise_exception))
        assert [next(rows) for _ in range(3)] == [(0,), (1,), (2,)]
        with pytest.raises(KeyError, match="three"):
            next(rows)


VALUES = {
    "cls": [b" -7\n", b"1_000", b"18446744073709551616", b"7.5", b"", b"0x10"],
    "json": [b"NaN", b"[-Infinity]", b"1" * 40, b'"\\ud800"', b"-0", "1".encode("utf-16"), b"[" * 200 + b"]" * 200]
    + [b"null", b"[1,]", b""],
    "txt": ["é".encode(), b"\xff", b"", b"\xef\xbb\xbfx"],
}


@pytest.mark.parametrize(("field", "data"), [(field, data) for field, values in VALUES.items() for data in values])
def test_odd_values_are_read_as_the_stages_read_them(tmp_path, field, data):
    path = str(write_shard(tmp_path / "a.tar", [{"__key__": b"k", field: data}]))

    def outcome(**options):
        ds = wds.WebDataset(path, shardshuffle=False, **options).decode().to_tuple(field)
        try:
            return repr(list(ds))
        except (wds.DecodingError, ValueError) as error:
            return type(error), getattr(error, "key", None), getattr(error, "k", None)

    assert wds.WebDataset(path, shardshuffle=False).decode().to_tuple(field).explain().engine == "native"
    assert outcome() == outcome(compat="strict")


def test_none_is_refused_or_passes_as_to_tuple_says(tmp_path):
    rows = [{"__key__": b"k", "cls": b"1", "jpg": jpeg(photo(0, 20, 20))}]
    path = str(write_shard(tmp_path / "a.tar", rows))
    for field in ("cls", "jpg"):
        changed = {field: lambda value: None}
        ds = wds.WebDataset(path, shardshuffle=False).decode("pil").map_dict(**changed)
        assert list(ds.to_tuple(field, none_is_error=False)) == [(None,)]
        with pytest.raises(ValueError, match="None"):
            list(ds.to_tuple(field))
        assert ds.to_tuple(field).explain().python == (changed[field].__qualname__,)


def test_a_shard_named_twice_comes_twice(folder):
    shard = str(folder / "train-000.tar")
    ds = wds.WebDataset(f"{shard}::{shard}", shardshuffle=False).decode().to_tuple("cls")
    assert [label for (label,) in ds] == [*range(16), *range(16)]


def test_samples_that_are_kept_do_not_keep_their_batch(pattern):
    ds = wds.WebDataset(pattern, shardshuffle=False).decode("torchrgb8").to_tuple("jpg")
    kept = [image for (image,) in ds]
    assert all(image.untyped_storage().nbytes() == image.numel() for image in kept)


def test_compressed_shards_are_streamed_natively(tmp_path):
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for number in range(6):
            for ext, data in {"jpg": jpeg(photo(number, 40, 30)), "cls": b"%d" % number}.items():
                member = tarfile.TarInfo(f"{number}.{ext}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    ds = wds.WebDataset(str(path), shardshuffle=False).decode("rgb8").to_tuple("jpg", "cls").batched(4)
    assert ds.explain().engine == "native"
    assert [labels.tolist() for _, labels in ds] == [[0, 1, 2, 3], [4, 5]]


def test_no_samples_is_an_error_unless_it_is_expected(tmp_path):
    path = str(write_shard(tmp_path / "empty.tar", []))
    with pytest.raises(ValueError, match="no samples"):
        list(wds.WebDataset(path, shardshuffle=False).decode().to_tuple("cls"))
    assert list(wds.WebDataset(path, shardshuffle=False, empty_check=False).decode().to_tuple("cls")) == []


def test_the_example_runs_natively(pattern, monkeypatch, capsys):
    pytest.importorskip("torchvision")
    example = Path(__file__).resolve().parents[3] / "examples" / "webdataset_script.py"
    monkeypatch.setattr("sys.argv", [str(example), pattern])
    runpy.run_path(str(example), run_name="__main__")
    output = capsys.readouterr().out
    assert output.startswith("engine  native")
    assert "epoch 1: 48 images" in output
