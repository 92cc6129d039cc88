"""`brimful bench loader --train`: turns of fed and resident training, without a GPU; and a driver that is made up."""

from __future__ import annotations

import ctypes
import json
import sys
import types

import pytest

import brimful.__main__ as command
from brimful import bench_training
from brimful.bench_gpu import GpuUsage
from conftest import jpeg, photo, sample, write_shard

torch = pytest.importorskip("torch", reason="torch cannot be imported")

from brimful import bench_model  # noqa: E402 - it needs torch

ON_CPU = ["--train", "tiny", "--device", "cpu", "--batch-size", "4", "--image-size", "16", "--seconds", "0.05"]
ON_CPU += ["--rounds", "3", "--warm-steps", "1"]


@pytest.fixture
def tiny(monkeypatch):
    """A model that takes no time, in place of torchvision's."""

    def classifier(name: str) -> torch.nn.Module:
        pool = torch.nn.AdaptiveAvgPool2d(1)
        return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), pool, torch.nn.Flatten(), torch.nn.Linear(4, 1000))

    monkeypatch.setattr(bench_model, "_classifier", classifier)


def test_fed_and_resident_training_take_turns(tiny, pattern, capsys):
    assert command.main(["bench", "loader", *ON_CPU, "--shards", pattern, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["model"], report["device"], report["batch_size"]) == ("tiny", "cpu", 4)
    assert len(report["rounds"]) == len(report["spread"]["ratio"]["runs"]) == 3
    first = report["rounds"][0]
    assert first["fed"]["images"] == 4 * first["fed"]["steps"]
    assert first["fed"]["images_per_s"] > 0 and first["resident"]["images_per_s"] > 0
    assert 0 <= report["steps_waiting_share"] <= 1
    assert report["fed"]["sm_percent"] is None, "there is no GPU to ask"
    assert report["data"] == {"shards": 3, "samples": 48, "folder": None}


def test_the_table_names_the_ratio_and_the_waits(tiny, pattern, tmp_path, capsys):
    out = tmp_path / "bench.json"
    assert (
        command.main(["bench", "loader", f"--train={'tiny'}", *ON_CPU[2:], "--shards", pattern, "--out", str(out)]) == 0
    )
    text = capsys.readouterr().out
    assert "fed / resident" in text and "waited for data" in text and "CPU s per 1,000" in text
    assert json.loads(out.read_text())["bad_samples"] == 0


def test_generated_photos_are_kept_in_the_cache(tiny, own_cache, capsys):
    assert bench_training.main([*ON_CPU, "--samples", "12", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["data"]["folder"] == str(own_cache / "brimful" / "photos-12")
    assert len(list((own_cache / "brimful" / "photos-12").glob("*.tar"))) == 4


def test_shards_without_labels_serve_too(tiny, tmp_path, capsys):
    rows = [{"__key__": f"{n}".encode(), "jpg": jpeg(photo(n))} for n in range(8)]
    assert bench_training.main([*ON_CPU, "--shards", str(write_shard(tmp_path / "a.tar", rows)), "--json"]) == 0


def test_bad_images_are_told(tiny, tmp_path, capsys):
    rows = [*(sample(n) for n in range(8)), {"__key__": b"worse", "jpg": b"no image", "cls": b"1"}]
    assert bench_training.main([*ON_CPU, "--shards", str(write_shard(tmp_path / "a.tar", rows)), "--json"]) == 1
    assert "worse" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shards", "none-*.tar"], "none-*.tar"),
        (["--samples", "3"], "do not fill one batch"),
    ],
)
def test_what_cannot_be_measured_is_an_error(tiny, arguments, message, capsys):
    assert bench_training.main([*ON_CPU, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_model_that_does_not_exist_is_an_error(capsys):
    pytest.importorskip("torchvision")
    assert bench_training.main([*ON_CPU]) == 2
    assert "no classifier 'tiny'" in capsys.readouterr().err


def test_without_a_gpu_that_is_said_at_once(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert bench_training.main(["--train", "resnet18"]) == 2
    assert "torch sees no GPU" in capsys.readouterr().err


def test_only_training_runs_in_python(monkeypatch):
    seen = []
    monkeypatch.setattr(command._native, "cli_main", lambda argv: seen.append(argv) or 0)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    for argv in (["bench", "loader", "--device", "cuda"], ["bench", "decode", "--train", "x"], ["bench"]):
        assert command.main(argv) == 0
        assert seen.pop() == ["brimful", *argv]


class Event:
    """A CUDA event of a GPU that does everything at once, but for every second batch, which takes 3 ms to arrive."""

    recorded = 0
    at_ms = 0.0

    def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
        self.is_timed = enable_timing

    def record(self) -> None:
        if self.is_timed:
            Event.recorded += 1
            Event.at_ms += 3.0 if Event.recorded % 4 == 2 else 0.004
        self.ms = Event.at_ms

    def elapsed_time(self, later: Event) -> float:
        return later.ms - self.ms

    def synchronize(self) -> None:
        pass


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_events_of_the_training_stream_tell_which_steps_waited(tiny, monkeypatch):
    trainee = bench_model.Trainee("tiny", "cpu")
    trainee.device = types.SimpleNamespace(type="cuda", index=0)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setitem(sys.modules, "pynvml", Driver(counters=True))
    monkeypatch.setattr(GpuUsage, "of_torch", classmethod(lambda cls, device: cls("GPU-1")))
    batches = iter(lambda: (torch.randn(4, 3, 16, 16), torch.arange(4)), None)
    found = trainee.train(batches, seconds=0.1, warm_steps=2, cycle=2)
    assert found["steps"] % 2 == 0 and found["images"] == 4 * found["steps"]
    assert found["steps_waiting_share"] == pytest.approx(0.5, abs=0.02), "every second, but for the first"
    assert (found["hand_over_us_max"], found["sm_percent"]) == (3000.0, 91.2)


def test_steps_that_wait_are_counted():
    # The first finds an idle stream, and does not count.
    found = bench_model._waits([7.0, 10e-6, 20e-6, 51e-6, 0.5], 2.0)
    assert (found["steps"], found["steps_waiting"], found["steps_waiting_share"]) == (5, 2, 0.5)
    assert found["wait_share"] == 0.25


def test_what_a_loader_counts_is_that_between_two_looks():
    def stats(lent: int, early: int, engine_images: int) -> dict:
        counts = {"tensors_lent": lent, "tensors_early": early, "engine_images": engine_images}
        return {"device": {**counts, "slots": 3}}

    found = bench_model.loader_figures(stats(10, 10, 100), stats(50, 14, 300), 1000)
    assert (found["tensors_lent"], found["tensors_early"], found["tensors_early_share"]) == (40, 4, 0.1)
    assert (found["engine_images"], found["engine_images_share"]) == (200, 0.2)
    assert "tensors_early" not in bench_model.loader_figures({"device": None}, {"device": None}, 1000)


class Driver(types.ModuleType):
    """A driver with performance counters, or without; engine 2 and later are not there."""

    NVML_SUCCESS = 0
    NVML_GPM_METRIC_SM_UTIL = 2
    NVML_GPM_METRIC_NVJPG_0_UTIL = 40
    NVML_GPM_METRICS_GET_VERSION = 1

    class NVMLError(Exception):
        pass

    class c_nvmlGpmMetricsGet_t(ctypes.Structure):
        class Metric(ctypes.Structure):
            _fields_ = [("metricId", ctypes.c_uint), ("nvmlReturn", ctypes.c_uint), ("value", ctypes.c_double)]

        _fields_ = [
            ("version", ctypes.c_uint),
            ("numMetrics", ctypes.c_uint),
            ("sample1", ctypes.c_int),
            ("sample2", ctypes.c_int),
            ("metrics", Metric * 20),
        ]

    def __init__(self, counters: bool) -> None:
        super().__init__("pynvml")
        self.counters, self.samples, self.freed = counters, 0, []

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> str:
        if uuid != b"GPU-1":
            raise self.NVMLError("Not Found")
        return "gpu"

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlGpmQueryDeviceSupport(self, gpu: str) -> types.SimpleNamespace:
        return types.SimpleNamespace(isSupportedDevice=int(self.counters))

    def nvmlGpmSampleAlloc(self) -> int:
        self.samples += 1
        return self.samples

    def nvmlGpmSampleGet(self, gpu: str, sample: int) -> None:
        pass

    def nvmlGpmSampleFree(self, sample: int) -> None:
        self.freed.append(sample)

    def nvmlGpmMetricsGet(self, request) -> None:
        assert (request.sample1, request.sample2, request.numMetrics) == (1, 2, 9)
        values = {2: 91.25, 40: 80.0, 41: 40.0}
        for metric in request.metrics[: request.numMetrics]:
            metric.nvmlReturn = 0 if metric.metricId in values else 3
            metric.value = values.get(metric.metricId, 0.0)

    def nvmlDeviceGetUtilizationRates(self, gpu: str) -> types.SimpleNamespace:
        return types.SimpleNamespace(gpu=98)

    def nvmlDeviceGetJpgUtilization(self, gpu: str) -> list[int]:
        return [55, 1000]


def usage(monkeypatch, driver: Driver | None, uuid: str = "GPU-1") -> dict:
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr("brimful.bench_gpu._POLL_S", 0.001)
    gpu = GpuUsage(uuid)
    gpu.begin()
    while driver is not None and uuid == "GPU-1" and not gpu._seen["jpeg"]:
        pass
    return gpu.end()


def test_counters_say_how_many_multiprocessors_and_engines_work(monkeypatch):
    driver = Driver(counters=True)
    found = usage(monkeypatch, driver)
    assert (found["sm_percent"], found["sm_source"]) == (91.2, "counters")
    assert (found["jpeg_percent"], found["jpeg_engines_percent"]) == (60.0, [80.0, 40.0])
    assert found["gpu_percent"] == 98
    assert driver.freed == [1, 2]


def test_without_counters_utilization_stands_in(monkeypatch):
    found = usage(monkeypatch, Driver(counters=False))
    assert (found["sm_percent"], found["sm_source"]) == (98, "utilization")
    assert (found["jpeg_percent"], found["jpeg_source"]) == (55, "utilization")


@pytest.mark.parametrize(("driver", "uuid"), [(None, "GPU-1"), (Driver(counters=True), "GPU-2")])
def test_what_is_not_known_is_none(monkeypatch, driver, uuid):
    found = usage(monkeypatch, driver, uuid)
    assert (found["sm_percent"], found["jpeg_percent"], found["jpeg_engines_percent"]) == (None, None, [])
