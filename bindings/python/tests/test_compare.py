"""What the comparison with other loaders makes of its results."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

COMPARE = Path(__file__).resolve().parents[3] / "benches" / "compare"
if not COMPARE.is_dir():
    pytest.skip("the benches are not here", allow_module_level=True)


@pytest.fixture
def summary(monkeypatch):
    monkeypatch.syspath_prepend(str(COMPARE))
    for name in ("summary", "machine", "dali_peer"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import summary

    return summary


def bench_script(monkeypatch, name: str):
    """A script of the benches by name, with those that it imports."""
    monkeypatch.syspath_prepend(str(COMPARE))
    for module in ("fio", "machine", "throttled"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return importlib.import_module(name)


def loaded(number: int, **rates: float) -> list[dict]:
    """A round of the loaders alone; names as the rows', with _ for blanks."""
    return [
        {"round": number, "job": "load", "peer": peer.replace("_", " "), "images_per_s": rate, "cpu_s_per_1000": 1.0}
        for peer, rate in rates.items()
    ]


def trained(number: int, model: str, peer: str, ratio: float, **fed: float) -> dict:
    fed = {"images_per_s": 1000.0 * ratio, "steps_waiting_share": 0.0, "cpu_s_per_1000": 2.0, **fed}
    resident = {"images_per_s": 1000.0, "cpu_s_per_1000": 0.2}
    return {"round": number, "job": model, "peer": peer, "resident": resident, "fed": fed, "ratio": ratio}


def verdicts(found: dict) -> dict[str, bool]:
    return {goal["goal"]: goal["met"] for goal in found["goals"]}


def test_ratios_are_taken_round_by_round(summary):
    # A slow second round changes both rates and not their ratio.
    measured = [*loaded(0, brimful_auto=20_000, DALI_cpu=5_000), *loaded(1, brimful_auto=10_000, DALI_cpu=2_500)]
    row = summary.summarise(measured)["rows"]["load"]["DALI cpu"]
    assert row["times_slower_than_us"] == {"median": 4.0, "min": 4.0, "max": 4.0}
    assert row["images_per_s"] == {"median": 3750.0, "min": 2500.0, "max": 5000.0}


def test_goals_of_loading(summary):
    rates = {
        "brimful_cpu": 8_000,
        "brimful_gpu": 12_000,
        "no_loader": 8_500,
        "DALI_cpu": 4_700,
        "DALI_mixed_0.9": 19_000,
    }
    found = verdicts(summary.summarise(loaded(0, brimful_auto=18_000, **rates)))
    assert found == {
        "CPU decode / the same work without a loader": True,
        "CPU decode / DALI's CPU path": True,
        "auto / (engines alone + CPU alone)": True,
        "auto / DALI's best": False,
    }


def test_goals_of_training(summary):
    measured = [
        trained(0, "resnet50", "brimful auto", 0.995, cpu_s_per_1000=2.2),
        trained(0, "resnet50", "brimful cpu", 0.99, cpu_s_per_1000=2.0),
        trained(0, "resnet50", "brimful gpu", 0.97, cpu_s_per_1000=1.3),
        trained(0, "resnet18", "brimful auto", 0.91, steps_waiting_share=0.2),
    ]
    found = verdicts(summary.summarise(measured))
    assert found == {
        "ResNet-50 fed / resident": True,
        "ResNet-18 fed / resident": False,
        "ResNet-50: share of steps that wait": True,
        "ResNet-18: share of steps that wait": False,
        "ResNet-50: CPU s, auto / cpu": True,
        "ResNet-50: CPU s, gpu / cpu": False,
    }


def test_what_failed_and_what_was_not_measured_is_left_out(summary):
    failed = {"round": 0, "job": "load", "peer": "DALI cpu", "error": "no GPU"}
    found = summary.summarise([failed, *loaded(0, brimful_cpu=8_000)])
    assert list(found["rows"]["load"]) == ["brimful cpu"]
    assert found["goals"] == []


def test_the_tables_are_printed(summary, capsys):
    measured = [*loaded(0, brimful_auto=18_000, brimful_cpu=8_000), trained(0, "resnet50", "brimful auto", 0.995)]
    job = {"workers": 16, "batch_size": 256, "device": "cuda"}
    facts = {"cpu": "a processor", "cores": 16, "gpu": "a GPU"}
    data = {"files": 20_000, "bytes_mean": 104_000}
    summary.print_summary({"machine": facts, "job": job, "data": data, "summary": summary.summarise(measured)})
    text = capsys.readouterr().out
    assert "18,000 (18,000-18,000)" in text
    assert "0.995 (0.995 to 0.995)" in text and "met" in text


def test_an_index_for_dali_says_where_fields_lie(summary, tmp_path):
    import dali_peer

    from conftest import sample, write_shard

    shard = write_shard(tmp_path / "a.tar", [sample(0), sample(1)])
    dali_peer.write_index(shard, tmp_path / "idx" / "a.idx")
    head, *lines = (tmp_path / "idx" / "a.idx").read_text().splitlines()
    assert head == "v1.2 2" and len(lines) == 2
    fields = lines[1].split(" ")
    label = dict(zip(fields[0::4], zip(fields[1::4], fields[2::4], strict=True), strict=True))["cls"]
    with shard.open("rb") as file:
        file.seek(int(label[0]))
        assert file.read(int(label[1])) == b"1"


def pairs_of(ours: list[float], theirs: list[float], tail: list[float], our_tail: float = 2.0) -> list[dict]:
    def side(rate: float, p99: float) -> dict:
        return {"mb_per_s": rate, "p99_ms": p99, "cpu_s_per_gb": 0.1}

    rows = zip(ours, theirs, tail, strict=True)
    return [{"brimful": side(a, our_tail), "fio": side(b, p99)} for a, b, p99 in rows]


def test_parity_with_fio_is_met_only_where_all_of_the_interval_lies_within_the_goal(monkeypatch):
    fio = bench_script(monkeypatch, "fio")
    fives = [500.0, 510.0, 490.0, 505.0, 495.0]
    met = fio.summary(pairs_of([rate * 1.01 for rate in fives], fives, [2.0] * 5))
    assert met["met"] is True and met["ratio"]["value"] == pytest.approx(1.01) and met["p99_met"] is True
    # Pairs cancel what both sides share: a disk that slows down leaves the ratio alone.
    slower = fio.summary(pairs_of([100.0, 50.0, 25.0], [100.0, 50.0, 25.0], [2.0] * 3))
    assert slower["ratio"]["low"] == pytest.approx(1) and slower["met"] is True
    assert fio.summary(pairs_of([600.0] * 5, fives, [2.0] * 5))["met"] is False
    assert fio.summary(pairs_of([300.0, 700.0, 500.0, 900.0, 200.0], fives, [2.0] * 5))["met"] is None
    assert fio.summary(pairs_of(fives, fives, [2.0, 9.0, 1.0, 2.0, 2.0]))["p99_met"] is None
    assert fio.summary(pairs_of(fives, fives, [2.0] * 5, our_tail=3.0))["p99_met"] is False


def test_both_sides_of_fio_parity_do_the_same(monkeypatch):
    fio = bench_script(monkeypatch, "fio")
    files = [Path("a.tar"), Path("b.tar")]
    for case in fio.CASES:
        theirs, ours = case.fio(files, 2), case.brimful("brimful", files, 2)
        assert sum(word.startswith("--filename=") for word in theirs) == case.threads
        assert f"--bs={case.block_bytes}" in theirs and f"--blocks={case.block_bytes}" in ours
        assert ("--direct=1" in theirs) == ("--methods=direct" in ours)
        assert ("--invalidate=1" in theirs) == ("--cache=cold" in ours)
        assert ("--rw=randread" in theirs) == ("--patterns=blocks" in ours)


def test_a_throttled_disk_is_judged_only_where_it_is_faster_than_its_limit(monkeypatch):
    throttled = bench_script(monkeypatch, "throttled")
    assert throttled.judged([100.0, 90.0], 50.0, [49.0, 51.0, 48.0]) == {"ratio": 0.98, "met": True}
    assert throttled.judged([100.0, 90.0], 50.0, [40.0])["met"] is False
    assert throttled.judged([100.0, 60.0], 50.0, [49.0])["met"] is None


def test_a_limit_is_written_as_the_cgroups_version_wants_it(monkeypatch, tmp_path):
    throttled = bench_script(monkeypatch, "throttled")
    with pytest.raises(throttled.Skipped, match="no cgroup here"):
        throttled.place(tmp_path)
    (tmp_path / "blkio").mkdir()
    (tmp_path / "blkio" / "blkio.throttle.read_bps_device").touch()
    folder, control, line = throttled.place(tmp_path)
    assert (folder.name, control) == ("blkio", "blkio.throttle.read_bps_device")
    assert (line("8:0", 5), line("8:0", None)) == ("8:0 5", "8:0 0")
    (tmp_path / "cgroup.controllers").write_text("cpu io memory\n")
    folder, control, line = throttled.place(tmp_path)
    assert (folder, control) == (tmp_path, "io.max")
    assert (line("8:0", 5), line("8:0", None)) == ("8:0 rbps=5", "8:0 rbps=max")
    with pytest.raises(throttled.Skipped, match="no disk of its own"):
        throttled.disk_of(tmp_path, sys_block=tmp_path)
