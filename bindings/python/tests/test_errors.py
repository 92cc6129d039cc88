"""What goes wrong, as exceptions that say where and what to do."""

from __future__ import annotations

import gzip
import json
import pickle
import warnings

import numpy
import pytest

import brimful
from brimful import transforms as T
from conftest import sample, write_shard

CROP = T.Compose([T.CenterCrop(32), T.ToTensor()])


@pytest.fixture()
def damaged(tmp_path):
    rows = [sample(n) for n in range(12)]
    rows[4]["jpg"] = rows[4]["jpg"][:-200]
    rows[7]["jpg"] = b"no image at all"
    return write_shard(tmp_path / "damaged.tar", rows)


def test_a_damaged_image_names_shard_key_and_field(damaged):
    dataset = brimful.ShardDataset(damaged, transform=CROP)
    with pytest.raises(brimful.DecodeError) as caught:
        list(brimful.Loader(dataset, 2))
    error = caught.value
    assert (error.shard, error.key, error.field) == (str(damaged), "0004", "jpg")
    assert error.kind in ("truncated", "decode")
    assert "0004" in str(error)
    with pytest.raises(brimful.DecodeError, match="0007"):
        dataset[7]


@pytest.mark.filterwarnings("ignore::brimful.DataWarning")
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_bad_samples_are_left_out_counted_and_listed(damaged, tmp_path, policy):
    listed = tmp_path / "bad.jsonl"
    loader = brimful.Loader(
        brimful.ShardDataset(damaged, transform=CROP), 4, on_error=policy, max_errors=2, quarantine=listed
    )
    labels = [label for _, batch in loader for label in batch.tolist()]
    good = [n for n in range(12) if n not in (4, 7)]
    if policy == "skip":
        assert labels == good
    else:
        assert len(labels) == 12
        assert set(labels) == set(good)
    assert sorted(bad["key"] for bad in loader.bad_samples()) == ["0004", "0007"]
    assert len(listed.read_text().splitlines()) == 2
    stats = loader.stats()
    # Threads already work on the next epoch, which meets them again.
    assert stats["skipped" if policy == "skip" else "replaced"] >= 2
    assert stats["stages"]["decode"]["failures"] >= 2


def test_the_first_bad_samples_are_warned_of_and_the_rest_summed_up(tmp_path):
    rows = [sample(number) for number in range(12)]
    for number in range(0, 12, 2):
        rows[number]["jpg"] = b"no image at all"
    dataset = brimful.ShardDataset(write_shard(tmp_path / "bad.tar", rows), transform=CROP)
    loader = brimful.Loader(dataset, 4, on_error="skip")
    with pytest.warns(brimful.DataWarning) as caught:
        list(loader)
    told = [str(warning.message) for warning in caught]
    assert caught[0].filename == __file__
    assert all("left out" in sentence and "bad.tar" in sentence for sentence in told[:5])
    assert told[5:] == ["6 bad samples so far, of which 5 were named (decode 6): bad_samples() lists them"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(loader)


def test_a_stream_tells_what_its_shards_lost(tmp_path):
    plain = write_shard(tmp_path / "a.tar", [sample(number) for number in range(6)])
    whole = gzip.compress(plain.read_bytes())
    (tmp_path / "b.tar.gz").write_bytes(whole[: len(whole) // 2])
    dataset = brimful.ShardDataset(tmp_path / "b.tar.gz", fields="cls")
    loader = brimful.Loader(dataset, 2, on_error="skip", quarantine=tmp_path / "bad.jsonl")
    with pytest.warns(brimful.DataWarning, match="unknown"):
        labels = [label for batch in loader for label in batch.tolist()]
    stream = loader.stats()["stream"]
    assert (stream["shards"], stream["lost_shards"], stream["samples"]) == (1, 1, len(labels))
    [bad] = loader.bad_samples()
    assert (bad["kind"], bad["cause"], bad["key"]) == ("shard", "truncated", "")
    [line] = (tmp_path / "bad.jsonl").read_text().splitlines()
    assert json.loads(line)["kind"] == "shard"
    assert brimful.Loader(brimful.ShardDataset(plain), 2).stats()["stream"] is None


@pytest.mark.filterwarnings("ignore::brimful.DataWarning")
@pytest.mark.parametrize("allowed", [1, 0.1])
def test_a_budget_of_errors_is_kept(damaged, allowed):
    loader = brimful.Loader(brimful.ShardDataset(damaged, transform=CROP), 4, on_error="skip", max_errors=allowed)
    with pytest.raises(brimful.TooManyErrors):
        list(loader)


def test_what_does_not_exist_is_a_file_not_found_error(tmp_path):
    for error in (FileNotFoundError, brimful.NotFoundError, brimful.ShardError, brimful.BrimfulError):
        with pytest.raises(error, match="gone"):
            brimful.ShardDataset(tmp_path / "gone.tar")


def test_missing_fields_and_values_that_make_no_sense(tmp_path):
    rows = [sample(0), sample(1)]
    del rows[1]["txt"]
    rows[1]["cls"] = b"seven and a half"
    shard = write_shard(tmp_path / "a.tar", rows)
    with pytest.raises(KeyError) as caught:
        brimful.ShardDataset(shard, fields="txt")[1]
    assert isinstance(caught.value, brimful.MissingFieldError)
    assert "hint: " in str(caught.value)
    with pytest.raises(brimful.FieldValueError, match="0001") as caught:
        brimful.ShardDataset(shard, fields="cls")[1]
    assert isinstance(caught.value, ValueError)


def test_a_file_that_is_no_archive(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"this is no archive, but it is long enough to be one " * 40)
    with pytest.raises(brimful.ShardError):
        brimful.ShardDataset(tmp_path / "a.tar")


def test_a_cut_archive_is_an_error_unless_told_otherwise(tmp_path):
    shard = write_shard(tmp_path / "a.tar", [sample(n) for n in range(4)])
    data = shard.read_bytes()
    shard.write_bytes(data[: len(data) // 2])
    with pytest.raises(brimful.ShardError):
        brimful.ShardDataset(shard, index_cache=None)


def test_options_out_of_range_say_what_is_legal(pattern):
    with pytest.raises(brimful.InvalidOptionError, match='"RGB"'):
        brimful.ShardDataset(pattern, mode="BGR")
    with pytest.raises(ValueError, match="batch_size=0"):
        brimful.Loader(brimful.ShardDataset(pattern), 0)
    with pytest.raises(brimful.InvalidOptionError, match="float32"):
        brimful.Loader(brimful.ShardDataset(pattern), 2, dtype="float64")
    with pytest.raises(TypeError, match="ShardDataset"):
        brimful.Loader([1, 2, 3])


def test_errors_survive_pickling(damaged):
    with pytest.raises(brimful.DecodeError) as caught:
        brimful.ShardDataset(damaged)[4]
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is type(caught.value)
    assert vars(copy) == vars(caught.value)
    assert str(copy) == str(caught.value)
    error = brimful.NotFoundError("gone", kind="not_found", hint="look elsewhere")
    assert str(pickle.loads(pickle.dumps(error))) == "gone\nhint: look elsewhere"


def test_single_images(samples):
    pixels = brimful.io.decode_image(samples[0]["jpg"])
    assert (pixels.dtype, pixels.shape, pixels.flags.writeable) == (numpy.uint8, (120, 160, 3), True)
    for view in (bytearray(samples[0]["jpg"]), memoryview(samples[0]["jpg"])):
        numpy.testing.assert_array_equal(brimful.io.decode_image(view), pixels)
    assert brimful.io.decode_image(samples[0]["jpg"], mode="L").shape == (120, 160, 1)
    for data in (b"", b"no image", samples[0]["jpg"][:-100], samples[0]["jpg"][:50]):
        with pytest.raises(brimful.DecodeError):
            brimful.io.decode_image(data)
    with pytest.raises(brimful.InvalidOptionError):
        brimful.io.decode_image(samples[0]["jpg"], decoder="gpu")
