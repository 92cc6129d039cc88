"""The adaptive loader in whole programs: the example, and Lightning's callback on a trainer that is not there."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

import brimful
from brimful import AutoBatch, autobatch
from brimful.lightning import auto_batch_callback, scale_rates
from test_autobatch import FakeClock

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "adaptive.py"


@pytest.fixture(autouse=True)
def fake_clock(monkeypatch):
    monkeypatch.setattr(autobatch, "clock", lambda device: FakeClock())


@pytest.mark.parametrize("more", [[], ["--global-batch", "16"]])
def test_the_example_trains(pattern, capsys, more):
    pytest.importorskip("torchvision")
    spec = importlib.util.spec_from_file_location("adaptive_example", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    argv = [pattern, "--device", "cpu", "--min", "8", "--max", "16", "--image-size", "32", "--epochs", "1", *more]
    torch.set_num_threads(1)
    assert example.main(argv) in (8, 16)
    assert "samples a batch, limited by" in capsys.readouterr().out


def test_learning_rates_and_their_schedulers_are_scaled():
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    scale_rates([optimizer], [scheduler], 2.0)
    assert optimizer.param_groups[0]["lr"] == 0.2 and scheduler.base_lrs == [0.2]


def test_lightnings_callback_follows_the_changes(pattern, monkeypatch):
    package = ModuleType("lightning.pytorch")
    package.Callback = type("Callback", (), {})
    monkeypatch.setitem(sys.modules, "lightning.pytorch", package)
    dataset = brimful.ShardDataset(pattern, fields="cls")
    loader = brimful.DataLoader(dataset, AutoBatch(min=8, max=16), num_workers=1)
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1)
    trainer = SimpleNamespace(optimizers=[optimizer], lr_scheduler_configs=[])
    logged = []
    module = SimpleNamespace(log=lambda name, value, **_: logged.append((name, value)))
    callback = auto_batch_callback(loader)
    assert isinstance(callback, package.Callback)
    for _ in range(12):
        for number, batch in enumerate(loader):
            callback.on_train_batch_start(trainer, module, batch, number)
            assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * loader.batch_size / 8)
    assert ("batch_size", 16.0) in logged
    for batch in (8, AutoBatch(min=8, max=16, global_batch=16)):
        with pytest.raises(ValueError, match="fixed batch size|accumulation"):
            auto_batch_callback(brimful.DataLoader(dataset, batch, num_workers=1))
