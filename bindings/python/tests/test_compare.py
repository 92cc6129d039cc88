"""What the comparison with other loaders makes of its results."""

from __future__ import annotations

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
