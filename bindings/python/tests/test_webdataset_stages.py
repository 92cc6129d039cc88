"""The stages, one by one: what each gives, what it says about failures, and what it refuses."""

from __future__ import annotations

import io
import pickle
import warnings

import numpy
import pytest

import brimful
import brimful.webdataset as wds
from brimful.webdataset import autodecode, filters, tenbin
from brimful.webdataset.braces import braceexpand
from conftest import jpeg, photo, write_shard


def run(*stages, source=None):
    return list(wds.DataPipeline(source if source is not None else [], *stages))


def through(stage, items):
    return list(stage(iter(items)))


def raises_on_two(value):
    if value == 2:
        raise ValueError("two")
    return value


@pytest.mark.parametrize(
    ("handler", "expected"),
    [(wds.ignore_and_continue, [1, 3]), (wds.ignore_and_stop, [1])],
)
def test_a_handler_says_whether_to_go_on(handler, expected):
    assert through(wds.map(raises_on_two, handler=handler), [1, 2, 3]) == expected


def test_handlers_that_warn_do_not_sleep_and_the_default_raises():
    with pytest.warns(UserWarning, match="two"):
        assert through(wds.map(raises_on_two, handler=wds.warn_and_continue), [1, 2, 3]) == [1, 3]
    with pytest.warns(UserWarning, match="two"):
        assert through(wds.map(raises_on_two, handler=wds.warn_and_stop), [1, 2, 3]) == [1]
    with pytest.raises(ValueError, match="two"):
        through(wds.map(raises_on_two), [1, 2, 3])


def test_map_leaves_none_out_and_gives_dicts_their_key_back():
    assert through(wds.map(lambda x: x or None), [0, 1]) == [1]
    assert through(wds.map(lambda s: {"n": 1}), [{"__key__": "a"}]) == [{"n": 1, "__key__": "a"}]


ROW = {"__key__": "a", "png": 1, "cls": 2}


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (wds.to_tuple("png", "cls"), (1, 2)),
        (wds.to_tuple("jpg;png cls"), (1, 2)),
        (wds.to_tuple("jpg", "cls", missing_is_error=False), (None, 2)),
        (wds.rename(image="jpg;png"), {"__key__": "a", "cls": 2, "image": 1}),
        (wds.rename(image="png", keep=False), {"image": 1}),
        (wds.rename_keys(image="p*", keep_unselected=True), {"__key__": "a", "cls": 2, "image": 1}),
        (wds.rename_keys(("image", "p*")), {"image": 1}),
        (wds.extract_keys("*.png;*.jpg", "cls"), (1, 2)),
        (wds.extract_keys("none", "cls", ignore_missing=True), (2,)),
        (wds.map_dict(cls=str), {"__key__": "a", "png": 1, "cls": "2"}),
        (wds.associate({"a": {"more": 3}}), {**ROW, "more": 3}),
        (wds.select(lambda sample: sample["cls"] == 2), ROW),
    ],
)
def test_stages_on_fields(stage, expected):
    assert through(stage, [dict(ROW)]) == [expected]


@pytest.mark.parametrize(
    ("stage", "error", "advice"),
    [
        (wds.to_tuple("jpg"), ValueError, "png"),
        (wds.map_dict(jpg=str), KeyError, "jpg"),
        (wds.map_dict(jpg=3), AssertionError, "function"),
        (wds.rename(image="jpg"), ValueError, "jpg"),
        (wds.rename_keys(image="jpg"), ValueError, "must_match=False"),
        (wds.extract_keys("*"), ValueError, "duplicate_is_error=False"),
        (wds.extract_keys("jpg"), ValueError, "ignore_missing=True"),
        (wds.map_tuple(str), AssertionError, "to_tuple"),
        (wds.xdecode(), ValueError, "must_decode=False"),
        (wds.decode(3), AssertionError, "spec or a function"),
        (wds.decode("rgb9"), ValueError, "rgb8"),
        (wds.batched(0), ValueError, "at least one"),
        (wds.unlisted(), AssertionError, "unbatched"),
    ],
)
def test_what_is_refused_says_what_to_do(stage, error, advice):
    with pytest.raises(error, match=advice.replace("*", r"\*")):
        through(stage, [dict(ROW)])


def test_map_tuple_leaves_values_without_a_function_alone():
    assert through(wds.map_tuple(str, None), [(1, 2, 3)]) == [("1", 2, 3)]
    assert through(wds.map_tuple(str, str, str, str), [(1, 2)]) == [("1", "2")]


def test_batches_are_arrays_of_numbers_and_lists_of_the_rest():
    rows = [(n, float(n), str(n), numpy.full(2, n)) for n in range(5)]
    batches = through(wds.batched(2), rows)
    assert [len(batch[0]) for batch in batches] == [2, 2, 1]
    numbers, floats, texts, arrays = batches[0]
    assert numbers.dtype == numpy.int64 and floats.dtype == numpy.float64
    assert texts == ["0", "1"] and arrays.shape == (2, 2)
    assert len(through(wds.batched(2, partial=False), rows)) == 2
    assert through(wds.batched(2, collation_fn=None), rows)[0] == rows[:2]
    dicts = through(wds.batched(2), [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    assert dicts[0]["a"].tolist() == [1, 2] and dicts[0]["b"] == ["x", "y"]
    assert len(through(wds.unbatched(), batches)) == 5
    assert through(wds.unbatched(), dicts) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize("rows", [[{"a": 1}, {"b": 1}], [(1,), (1, 2)], [(numpy.zeros(2),), (numpy.zeros(3),)]])
def test_samples_that_cannot_share_a_batch_are_refused(rows):
    with pytest.raises(AssertionError):
        through(wds.batched(2), rows)


def test_listed_honours_partial_and_strict_does_not():
    def lists(**kw):
        ds = wds.FluidWrapper([1, 2, 3], **kw)
        return list(ds.listed(2, partial=False))

    assert lists() == [[1, 2]]
    assert lists(compat="strict") == [[1, 2], [3]]


def test_a_seeded_shuffle_has_another_order_each_epoch_and_strict_the_same():
    source = list(range(200))
    for compat, repeats in ((None, False), ("strict", True)):
        ds = wds.DataPipeline(wds.MockDataset(0, 1), lambda src: iter(source), wds.shuffle(50, seed=3, compat=compat))
        first, second = list(ds), list(ds)
        assert (first == second) is repeats
        assert sorted(first) == sorted(second) == source != first
    again = wds.shuffle(50, seed=3)
    assert list(again(source)) == list(wds.shuffle(50, seed=3, compat="strict")(source))


def test_detshuffle_counts_its_epochs():
    stages = [wds.detshuffle(50, seed=3) for _ in range(2)]
    runs = [[list(stage.run(iter(range(100)))) for _ in range(2)] for stage in stages]
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


def test_a_shuffle_of_nothing_is_no_stage():
    ds = wds.FluidWrapper([1, 2])
    assert ds.shuffle(0) is ds


def test_epochs_go_on_where_the_last_one_ended_and_strict_begins_anew():
    source = wds.DataPipeline(lambda: iter(range(5)))
    assert [list(source.with_epoch(3)) for _ in range(1)] == [[0, 1, 2]]
    epochs = source.with_epoch(3)
    assert [list(epochs) for _ in range(3)] == [[0, 1, 2], [3, 4, 0], [1, 2, 3]]
    strict = wds.DataPipeline(lambda: iter(range(5)), compat="strict").with_epoch(3)
    assert [list(strict) for _ in range(2)] == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_epochs_go_on_after_one_that_failed(failure):
    failures = [failure()]

    def source():
        for n in range(5):
            if n == 2 and failures:
                raise failures.pop()
            yield n

    for epochs in (wds.DataPipeline(source).with_epoch(3), wds.with_epoch(wds.DataPipeline(source), 3)):
        failures[:] = [failure()]
        with pytest.raises(failure):
            list(epochs)
        assert [list(epochs) for _ in range(2)] == [[0, 1, 2], [3, 4, 0]]


def test_repeats_and_lengths():
    ds = wds.DataPipeline(lambda: iter(range(5)))
    assert list(ds.repeat(2)) == [*range(5), *range(5)]
    assert list(ds.repeat(2, nbatches=7)) == [*range(5), 0, 1]
    with pytest.raises(TypeError):
        len(ds)
    with pytest.warns(UserWarning, match="not how many samples"):
        sized = ds.with_length(12)
    assert len(sized) == 12 and sized is ds
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(ds.with_length(13, silent=True)) == 13


def test_a_pipeline_with_a_length_can_be_pickled(pattern):
    ds = wds.WebDataset(pattern, shardshuffle=False).decode().to_tuple("cls").with_length(48, silent=True)
    copy = pickle.loads(pickle.dumps(ds))
    assert len(copy) == 48 and isinstance(copy, wds.WebDataset)
    assert len(copy.batched(4).with_length(12, silent=True)) == 12


def test_pipelines_take_lists_nones_functions_and_objects():
    class Doubled(wds.PipelineStage):
        def run(self, source):
            return (2 * item for item in source)

    ds = wds.DataPipeline(wds.MockDataset(1, 2), None, [[Doubled()], [wds.map(str)]])
    assert list(ds) == ["2", "2"]
    assert list(wds.DataPipeline(ds, wds.map(int))) == [2, 2]
    assert list(ds.compose(wds.map(len))) == [1, 1] and len(ds.pipeline) == 3
    with pytest.raises(ValueError, match="function of an iterator"):
        list(wds.DataPipeline(wds.MockDataset(1, 2), 3))
    with pytest.raises(ValueError, match="the first is a data set"):
        list(wds.DataPipeline(3))
    with pytest.raises(ValueError, match="the pipeline is empty"):
        list(wds.DataPipeline())


def test_a_cache_in_memory_gives_samples_again():
    seen = []
    ds = wds.DataPipeline(lambda: (seen.append(n) or n for n in range(3)), wds.Cached())
    assert list(ds) == list(ds) == [0, 1, 2]
    assert seen == [0, 1, 2]


def test_mixtures():
    assert list(wds.RoundRobin([[1, 2], [3], [4, 5]])) == [1, 3, 4, 2]
    assert list(wds.RoundRobin([[1, 2], [3], [4, 5]], longest=True)) == [1, 3, 4, 2, 5]
    mixed = list(wds.RandomMix([[1] * 50, [2] * 50], longest=True))
    assert sorted(mixed) == [1] * 50 + [2] * 50
    assert set(wds.RandomMix([[1] * 5, [2] * 5], probs=[1, 0])) == {1}
    with pytest.raises(ValueError, match="one for each"):
        list(wds.RandomMix([[1], [2]], probs=[1]))


@pytest.mark.parametrize("spec", autodecode.imagespecs)
def test_images_have_the_type_range_and_shape_of_their_spec(spec):
    image = photo(1, 20, 10)
    if spec.startswith("torch"):
        pytest.importorskip("torch")
    decoded = wds.imagehandler(spec)(".jpg", jpeg(image))
    container, element, colours = autodecode.imagespecs[spec]
    if container == "pil":
        assert (decoded.size, decoded.mode) == ((20, 10), colours.upper())
        return
    channels = {"l": (), "rgb": (3,), "rgba": (4,)}[colours]
    shape = (10, 20, *channels) if container == "numpy" else (*channels, 10, 20)
    assert tuple(decoded.shape) == shape
    assert str(decoded.dtype).endswith("uint8" if element == "uint8" else "float32")
    assert float(decoded.max()) <= (255 if element == "uint8" else 1)
    assert wds.imagehandler(spec)(".txt", b"") is None


@pytest.mark.parametrize(
    ("field", "data", "value"),
    [
        ("txt", "é".encode(), "é"),
        ("cls", b" 7\n", 7),
        ("json", b'{"a": 1}', {"a": 1}),
        ("x.json.gz", b"\x1f\x8b", None),
        ("html", b"<p>", b"<p>"),
        ("class", b"7", b"7"),
    ],
)
def test_values_by_extension(field, data, value):
    if field.endswith("gz"):
        import gzip

        data, value = gzip.compress(b"[1]"), [1]
    assert wds.Decoder([])({"__key__": "a", field: data}) == {"__key__": "a", field: value}


def test_arrays_by_extension_and_no_pickles_in_them():
    buffer = io.BytesIO()
    numpy.save(buffer, numpy.array([object()]), allow_pickle=True)
    with pytest.raises(wds.DecodingError):
        wds.Decoder([])({"npy": buffer.getvalue()})
    assert wds.Decoder([])({"npy": wds.numpy_dumps(numpy.arange(3))})["npy"].tolist() == [0, 1, 2]


def test_a_field_that_cannot_be_decoded_is_named():
    with pytest.raises(wds.DecodingError, match="'cls' of sample 'a' in u.tar") as caught:
        wds.Decoder([])({"__key__": "a", "__url__": "u.tar", "cls": b"7.5"})
    assert (caught.value.k, caught.value.key) == ("cls", "a")
    assert "7.5" in str(caught.value)


def test_decoding_twice_is_an_error_unless_partial():
    sample = wds.Decoder([])({"cls": b"7"})
    with pytest.raises(wds.DecodingError, match="decoded before"):
        wds.Decoder([])(sample)
    assert wds.Decoder([], partial=True)(sample) == {"cls": 7}
    assert wds.Decoder([], only="txt")({"cls": b"7", "txt": b"x"}) == {"cls": b"7", "txt": "x"}


def test_ten_holds_arrays_with_names():
    arrays = [numpy.arange(6, dtype="u1").reshape(2, 3), numpy.zeros((0, 4)), numpy.array(1.5, dtype="f4")]
    data = tenbin.encode_buffer(arrays, ["a", "", "c"])
    read, names = tenbin.decode_buffer(data, infos=True)
    assert names == ["a", "", "c"]
    for one, other in zip(read, arrays):
        assert one.dtype == other.dtype and one.shape == other.shape and (one == other).all()
    for damage in (data[:-64], data[:70], b"x" + data[1:], data[:8] + b"\xff" * 8 + data[16:]):
        with pytest.raises(ValueError):
            tenbin.decode_buffer(bytes(damage))


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("a{000..002}.tar", ["a000.tar", "a001.tar", "a002.tar"]),
        ("{a,b}{1..2}", ["a1", "a2", "b1", "b2"]),
        ("{a,{b,c}}", ["a", "b", "c"]),
        ("{9..11}", ["9", "10", "11"]),
        ("{10..0..5}", ["10", "5", "0"]),
        ("{a..c}", ["a", "b", "c"]),
        ("{a}", ["{a}"]),
        ("a{b", ["a{b"]),
        ("${X}{1,2}", ["${X}1", "${X}2"]),
        ("{,x}y", ["y", "xy"]),
    ],
)
def test_braces_expand_as_in_bash(pattern, expanded):
    assert list(braceexpand(pattern)) == expanded


def test_a_brace_of_too_many_names_is_refused():
    with pytest.raises(brimful.InvalidOptionError, match="digit too many"):
        list(braceexpand("{0..99999999}"))


def test_stages_can_be_pickled(pattern):
    ds = wds.WebDataset(pattern, shardshuffle=3).shuffle(5).decode("rgb8").to_tuple("jpg", "cls").batched(2)
    copy = pickle.loads(pickle.dumps(ds))
    assert [type(stage) for stage in copy.pipeline] == [type(stage) for stage in ds.pipeline]
    assert len(list(copy.unbatched())) == 48
    assert "shuffle" in repr(wds.shuffle(3)) and "batched" in repr(wds.batched(2))


def test_the_old_collation_arguments_and_helpers_are_there():
    assert filters.getfirst({"a": 1}, "b;a") == 1
    assert filters.parse_field_spec("png;jpg cls") == [["png", "jpg"], ["cls"]]
    assert filters.pipeline([1, 2], filters.batched(2, collation_fn=None)).__next__() == [1, 2]
    assert filters.transform_with((1, 2), [str]) == ["1", 2]


def test_log_keys_writes_a_line_for_each_sample(tmp_path, pattern):
    log = tmp_path / "keys"
    list(wds.WebDataset(pattern, shardshuffle=False).log_keys(str(log)))
    lines = log.read_text().splitlines()
    assert len(lines) == 48 and lines[0].split("\t") == ["0", "None", "None", "0000"]


def test_webdataset_takes_paths_lists_and_refuses_others(tmp_path):
    path = write_shard(tmp_path / "a.tar", [{"__key__": b"a", "txt": b"x"}])
    for urls in (path, str(path), [path], [str(path)], iter([str(path)]), wds.SimpleShardList(str(path))):
        assert len(list(wds.WebDataset(urls, shardshuffle=False))) == 1
    for urls, error, advice in (
        ([], IndexError, "at least one name"),
        (3, ValueError, "a pattern or as names"),
        ("a.json", ValueError, ".yaml"),
        ([3], AssertionError, "strings"),
    ):
        with pytest.raises(error, match=advice):
            wds.WebDataset(urls, shardshuffle=False)
    with pytest.raises(brimful.InvalidOptionError, match='"strict"'):
        wds.WebDataset(str(path), shardshuffle=False, compat="old")
    for shuffle, words in ((None, "shardshuffle=False"), (True, "a number of shards")):
        with pytest.warns(UserWarning, match=words):
            wds.WebDataset(str(path), shardshuffle=shuffle)
    with pytest.warns(UserWarning, match="ignored"):
        wds.WebDataset(str(path), resampled=True, shardshuffle=5)
