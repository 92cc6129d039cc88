"""Where shards come from: lists, folders, servers, commands, copies of them, and what may not be done."""

from __future__ import annotations

import http.server
import itertools
import os
import pickle
import subprocess
import sys
import threading
import time

import pytest

import brimful
import brimful.webdataset as wds
from brimful.webdataset import cache, shardlists
from brimful.webdataset.gopen import reader, rewrite_url
from conftest import write_shard


@pytest.fixture(autouse=True)
def nothing_allowed(monkeypatch):
    monkeypatch.setenv("BRIMFUL_WEBDATASET_ALLOW", "")
    monkeypatch.setattr(wds.utils, "enforce_security", False)
    for name in ("WORKER", "NUM_WORKERS", "WDS_SEED", "WDS_CACHE", "WDS_CACHE_SIZE", "GOPEN_REWRITE", "GOPEN_BUFFER"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def urls(source, count=None):
    return [item["url"] for item in itertools.islice(source, count)]


def shard(path, *keys):
    return str(write_shard(path, [{"__key__": key.encode(), "txt": key.encode()} for key in keys]))


def keys(source, **kw):
    return [sample["__key__"] for sample in wds.WebDataset(source, shardshuffle=False, **kw)]


def test_shards_of_a_pattern_come_in_order_or_as_the_seed_says(monkeypatch):
    monkeypatch.setenv("WDS_ROOT", "/data")
    assert urls(wds.SimpleShardList("${ROOT}/{0..1}.tar::b.tar")) == ["/data/0.tar", "/data/1.tar", "b.tar"]
    with pytest.raises(AssertionError, match="WDS_NONE"):
        wds.SimpleShardList("${NONE}/a.tar")
    shuffled = [urls(wds.SimpleShardList("{0..9}", seed=seed)) for seed in (1, 1, 2)]
    assert shuffled[0] == shuffled[1] != shuffled[2]
    assert len(wds.SimpleShardList("{0..9}")) == 10


def test_shards_are_split_among_ranks_and_workers(monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "WORKER": "2", "NUM_WORKERS": "3"}.items():
        monkeypatch.setenv(name, value)
    assert list(wds.split_by_node(range(10))) == [1, 3, 5, 7, 9]
    assert list(wds.split_by_worker(range(10))) == [2, 5, 8]
    with pytest.raises(ValueError, match="nodesplitter=split_by_node"):
        list(wds.single_node_only(range(3)))
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(brimful.InvalidOptionError, match="RANK"):
        list(wds.split_by_node(range(3)))


def test_drawn_shards_repeat_and_rounds_do_not():
    drawn = wds.ResampledShards("{0..9}", nshards=200, deterministic=True)
    first, second = urls(drawn), urls(drawn)
    assert len(first) == 200 and first != second
    assert urls(wds.ResampledShards("{0..9}", nshards=200, deterministic=True)) == first
    rounds = urls(wds.EndlessShards("{0..9}", seed=1), 30)
    assert all(len(set(rounds[start : start + 10])) == 10 for start in (0, 10, 20))
    assert rounds[:10] != rounds[10:20]
    with pytest.raises(ValueError, match="empty_check=False"):
        wds.ResampledShards([])
    assert len(urls(wds.resampled(7)(iter([{"url": "a"}])))) == 7


def test_a_list_of_data_sets(tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "mix.yaml"
    path.write_text(
        "prefix: /data/\n"
        "datasets:\n"
        "- {name: a, shards: 'a-{0..9}.tar', choose: 3}\n"
        "- {name: b, shards: ['b-{0..1}.tar'], buckets: far, resample: 5}\n"
        "- {name: c, shards: c.tar}\n"
    )
    mixed = shardlists.shardspec(str(path))
    mixed.set_epoch(1)
    names = urls(mixed)
    assert len({name for name in names if name.startswith("/data/a-")}) == 3
    assert len([name for name in names if name.startswith("/data/far/b-")]) == 5
    assert names.count("/data/c.tar") == 1
    with pytest.raises(AssertionError, match="chose"):
        wds.MultiShardSample({"datasets": [{"shards": "a.tar", "chose": 1}]})
    with pytest.raises(ValueError, match="resample: 4"):
        wds.MultiShardSample({"datasets": [{"shards": "a.tar", "choose": 4}]})


def chosen():
    return wds.MultiShardSample({"datasets": [{"shards": "a-{0..19}.tar", "choose": 8}, {"shards": "b-{0..9}.tar"}]})


def test_ranks_share_one_choice_of_a_list_of_data_sets_out_and_the_next_epoch_has_another(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    epochs = [[], []]
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        shards = wds.DataPipeline(chosen(), wds.split_by_node)
        for epoch in epochs:
            epoch += urls(shards)
    assert all(len(epoch) == len(set(epoch)) == 18 for epoch in epochs)
    assert sorted(epochs[0]) != sorted(epochs[1])


def test_workers_share_one_choice_of_a_list_of_data_sets_out_and_ranks_are_told_the_epoch(monkeypatch):
    torch = pytest.importorskip("torch")

    def epoch(mixed):
        shards = wds.DataPipeline(mixed, wds.split_by_node, wds.split_by_worker)
        return [row["url"] for row in torch.utils.data.DataLoader(shards, batch_size=None, num_workers=2)]

    mixed = chosen()
    one, other = epoch(mixed), epoch(mixed)
    assert len(one) == len(set(one)) == len(set(other)) == 18
    assert sorted(one) != sorted(other)
    monkeypatch.setenv("WORLD_SIZE", "2")
    told = []
    for number in range(2):
        told.append([])
        for rank in range(2):
            monkeypatch.setenv("RANK", str(rank))
            torch.manual_seed(rank)
            mixed = chosen()
            mixed.set_epoch(number)
            told[-1] += epoch(mixed)
    assert all(len(shards) == len(set(shards)) == 18 for shards in told)
    assert sorted(told[0]) != sorted(told[1])


def test_a_folder_is_a_queue_of_shards(tmp_path):
    for name in ("0.tar", "1.tgz"):
        (tmp_path / name).touch()
    folder = shardlists.DirectoryShardList(f"{tmp_path}/", poll=None, mode="keep")
    assert len(urls(folder)) == 2
    assert sorted(os.listdir(tmp_path)) == ["0.tar._done_", "1.tgz._done_"]
    for refused, advice in ((str(tmp_path), "slash"), (f"{tmp_path}/none/", "no folder")):
        with pytest.raises(AssertionError, match=advice):
            shardlists.DirectoryShardList(refused)


def test_files_are_opened_by_name_or_url(tmp_path):
    path = shard(tmp_path / "a b.tar", "x")
    for url in (path, f"file:{path}", f"file://{path.replace(' ', '%20')}"):
        assert keys(url) == ["x"]
    with wds.gopen(str(tmp_path / "new"), "wb") as stream:
        stream.write(b"abc")
    with reader(str(tmp_path / "new")) as stream:
        assert stream.read() == b"abc"
    with pytest.raises(AssertionError, match='"rb" or "wb"'):
        wds.gopen(path, "r")


@pytest.mark.parametrize(("url", "advice"), [("s3://b/a.tar", "aws s3 cp"), ("what://a", "gopen_schemes")])
def test_schemes_without_an_opener_say_what_to_do(url, advice):
    with pytest.raises(ValueError, match=advice):
        wds.gopen(url)


def test_an_opener_of_ones_own(tmp_path, monkeypatch):
    path = shard(tmp_path / "a.tar", "x")
    monkeypatch.setitem(wds.gopen_schemes, "mine", lambda url, mode, bufsize: open(path, mode))  # noqa: SIM115
    assert keys("mine://whatever") == ["x"]


def test_urls_are_rewritten_as_the_environment_says(monkeypatch):
    monkeypatch.setenv("GOPEN_REWRITE", "http://old/=file:/new/;gs://=/mnt/")
    assert rewrite_url("http://old/a") == "file:/new/a"
    assert rewrite_url("gs://b/a") == "/mnt/b/a"
    assert rewrite_url("other") == "other"
    monkeypatch.setenv("GOPEN_REWRITE", "nonsense")
    with pytest.raises(ValueError, match="old=new"):
        rewrite_url("a")


def test_commands_run_only_when_that_is_allowed(tmp_path):
    path = shard(tmp_path / "a.tar", "x", "y")
    with pytest.raises(brimful.InvalidOptionError, match=r'allow\("pipe"\)'):
        keys(f"pipe:cat {path}")
    wds.allow("pipe")
    assert keys(f"pipe:cat {path}") == keys(f"pipe:cat '{path}' | cat") == ["x", "y"]
    with wds.gopen(f"pipe:cat > {tmp_path}/out", "wb") as stream:
        stream.write(b"abc")
    assert (tmp_path / "out").read_bytes() == b"abc"
    wds.forbid("pipe")
    with pytest.raises(brimful.InvalidOptionError):
        wds.gopen(f"pipe:cat {path}")
    with pytest.raises(brimful.InvalidOptionError, match="pickle"):
        wds.allow("everything")


def test_a_command_that_fails_is_an_error(tmp_path):
    wds.allow("pipe")
    path = shard(tmp_path / "a.tar", "x", "y")
    with pytest.raises(OSError, match="exit status 3"):
        keys(f"pipe:cat {path}; exit 3")
    with pytest.raises(OSError, match="exit status 7"), wds.gopen("pipe:cat >/dev/null; exit 7", "wb") as stream:
        stream.write(b"abc")
    with pytest.raises(Exception, match="unexpected end of data"):
        keys(f"pipe:head -c 700 {path}")


def test_a_command_whose_output_is_not_wanted_any_more_is_ended_without_an_error():
    wds.allow("pipe")
    stream = wds.gopen("pipe:yes")
    assert stream.read(4) == b"y\ny\n"
    begin = time.monotonic()
    stream.close()
    assert time.monotonic() - begin < 4


def test_urls_of_commands_are_arguments_and_no_options(monkeypatch, tmp_path):
    log = tmp_path / "log"
    tool = tmp_path / "gsutil"
    tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {log}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    url = "gs://bucket/$(touch /tmp/never);a b.tar"
    with wds.gopen(url) as stream:
        stream.read()
    assert log.read_text().splitlines() == ["cat", url]


def test_pickles_are_read_only_when_that_is_allowed():
    sample = {"__key__": "a", "pyd": pickle.dumps([1])}
    with pytest.raises(wds.DecodingError, match=r'allow\("pickle"\)'):
        wds.Decoder([])(sample)
    wds.allow("pickle")
    assert wds.Decoder([])(sample)["pyd"] == [1]
    wds.utils.enforce_security = True
    with pytest.raises(wds.DecodingError, match="enforce_security"):
        wds.Decoder([])(sample)


def test_tensors_are_read_without_running_anything_where_only_that_is_allowed(tmp_path):
    torch = pytest.importorskip("torch")
    data = wds.torch_dumps({"a": torch.arange(3)})
    with pytest.raises(brimful.InvalidOptionError, match=r'allow\("torch"\)'):
        wds.torch_loads(data)
    wds.allow("torch")
    assert wds.torch_loads(data)["a"].tolist() == [0, 1, 2]
    path = tmp_path / "it happened"
    with pytest.raises(pickle.UnpicklingError):
        wds.torch_loads(wds.torch_dumps(Touch(str(path))))
    assert not path.exists()


class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


class Server(http.server.ThreadingHTTPServer):
    """Serves the files of a folder, with ranges, and breaks off after `cut` bytes the first `breaks` times.

    It gives no answer at all the first `hang_ups` times.
    """

    daemon_threads = True
    cut = breaks = hang_ups = 0
    requests: list[str] = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        if self.server.hang_ups:
            self.server.hang_ups -= 1
            self.close_connection = True
            return
        path = os.path.join(self.server.folder, self.path.lstrip("/"))
        if not os.path.exists(path):
            self.send_error(404)
            return
        with open(path, "rb") as stream:
            data = stream.read()
        begin = int(self.headers.get("Range", "bytes=0-")[6:-1])
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(data) - begin))
        self.send_header("ETag", '"one"')
        self.end_headers()
        rest = data[begin:]
        if self.server.breaks:
            self.server.breaks -= 1
            rest = rest[: self.server.cut]
        self.wfile.write(rest)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr("brimful.webdataset.http.FIRST_PAUSE_S", 0.001)
    with Server(("127.0.0.1", 0), Handler) as server:
        server.folder, server.requests = str(tmp_path), []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def test_shards_are_streamed_from_a_server(server, tmp_path):
    shard(tmp_path / "a.tar", "x", "y")
    assert keys(f"{server.url}/a.tar") == ["x", "y"]
    with pytest.raises(OSError, match="404"):
        keys(f"{server.url}/none.tar")


def test_a_broken_connection_is_taken_up_where_it_broke(server, tmp_path):
    shard(tmp_path / "a.tar", *map(str, range(50)))
    server.cut, server.breaks = 10_000, 3
    assert keys(f"{server.url}/a.tar") == list(map(str, range(50)))
    assert server.requests == ["/a.tar"] * 4


def test_a_connection_that_ends_before_the_answer_is_made_again(server, tmp_path):
    shard(tmp_path / "a.tar", "x", "y")
    server.hang_ups = 2
    assert keys(f"{server.url}/a.tar") == ["x", "y"]
    assert server.requests == ["/a.tar"] * 3
    server.hang_ups = 1000
    with pytest.raises(OSError, match="without response"):
        keys(f"{server.url}/a.tar")


def test_a_server_that_breaks_off_for_ever_is_an_error(server, tmp_path):
    shard(tmp_path / "a.tar", *map(str, range(50)))
    server.cut, server.breaks = 0, 1000
    with pytest.raises(OSError, match="ended after 0 of"):
        keys(f"{server.url}/a.tar")


def test_copies_of_shards_with_one_name_are_two(server, tmp_path):
    copies = tmp_path / "copies"
    copies.mkdir()
    for folder in ("train", "val"):
        (tmp_path / folder).mkdir()
        shard(tmp_path / folder / "000.tar", folder)
    for _ in range(2):
        for folder in ("train", "val"):
            ds = wds.WebDataset(f"{server.url}/{folder}/000.tar", shardshuffle=False, cache_dir=copies)
            (sample,) = ds
            assert sample["__key__"] == folder
            assert sample["__local_path__"].startswith(str(copies))
    assert len(server.requests) == 2
    assert len([name for name in os.listdir(copies) if not name.startswith(".")]) == 2


def test_the_environment_names_the_folder_of_copies_where_no_argument_does(server, tmp_path, monkeypatch):
    shard(tmp_path / "a.tar", "x")
    for name in ("by environment", "by argument"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "by environment"))
    monkeypatch.setenv("WDS_CACHE_SIZE", "5e9")
    url = f"{server.url}/a.tar"
    by_environment = wds.WebDataset(url, shardshuffle=False)
    by_argument = wds.WebDataset(url, shardshuffle=False, cache_dir=str(tmp_path / "by argument"), cache_size=7)
    assert (by_environment.cache_size, by_argument.cache_size) == (5e9, 7)
    for ds, name in ((by_environment, "by environment"), (by_argument, "by argument")):
        assert [sample["__local_path__"].startswith(str(tmp_path / name)) for sample in ds] == [True]


@pytest.mark.parametrize("url", ["a.tar", "file:a.tar", "pipe:cat a.tar"])
def test_a_secure_process_opens_servers_only(url, monkeypatch):
    wds.allow("pipe")
    monkeypatch.setattr(wds.utils, "enforce_security", True)
    with pytest.raises(ValueError, match="unsafe_gopen"):
        wds.gopen(url)


def test_storage_that_ais_serves_is_named_by_the_environment(tmp_path):
    code = "from brimful.webdataset.gopen import *; from brimful.webdataset.gopen import gopen_ais; "
    code += "print(gopen_schemes['s3'] is gopen_ais, 'aws' in gopen_schemes)"
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')\n")
    paths = f"{os.path.dirname(os.path.dirname(brimful.__file__))}:{tmp_path}"
    environment = {**os.environ, "USE_AIS_FOR": "s3:aws", "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_what_is_no_archive_is_not_kept(server, tmp_path):
    (tmp_path / "page.tar").write_bytes(b"<html>")
    copies = tmp_path / "copies"
    copies.mkdir()
    with pytest.raises(ValueError, match="no tar archive"):
        keys(f"{server.url}/page.tar", cache_dir=str(copies))
    assert [name for name in os.listdir(copies) if not name.endswith(".lock")] == []
    with pytest.raises(ValueError, match="make it first"):
        wds.WebDataset("a.tar", shardshuffle=False, cache_dir=str(tmp_path / "none"))


def test_a_cache_keeps_below_its_size(tmp_path):
    for number in range(5):
        path = tmp_path / str(number)
        path.write_bytes(bytes(100))
        os.utime(path, (number, number))
    cleanup = cache.LRUCleanup(tmp_path, 250, keyfn=os.path.getmtime, interval=None)
    cleanup.cleanup()
    assert sorted(os.listdir(tmp_path)) == ["3", "4"]


def test_seeds_come_from_the_environment(tmp_path, monkeypatch):
    path = shard(tmp_path / "a.tar", "x")
    monkeypatch.setenv("WDS_SEED", "7")
    assert wds.WebDataset(path, shardshuffle=5, detshuffle=True).seed == 7
    assert keys(path) == ["x"]
    monkeypatch.setenv("WDS_SEED", "seven")
    with pytest.raises(brimful.InvalidOptionError, match="WDS_SEED"):
        wds.WebDataset(path, shardshuffle=5)
