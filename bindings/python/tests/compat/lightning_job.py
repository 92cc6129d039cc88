"""One process of a Lightning job, by torchrun: what it trains on, written as JSON.

lightning_job.py OUT SHARDS OPTIONS
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import lightning
import torch

import brimful
from brimful import transforms as T


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3 * 16 * 16, 1)
        self.epochs: list[list[int]] = []

    def on_train_epoch_start(self) -> None:
        self.epochs.append([])

    def training_step(self, batch, index):
        self.epochs[-1] += batch[1].tolist()
        return self.layer(batch[0].float().flatten(1)).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def main(out: str, shards: str, options: str) -> None:
    warnings.simplefilter("ignore")
    transform = T.Compose([T.CenterCrop(16), T.ToTensor()])
    dataset = brimful.ShardDataset(shards, transform=transform, index_cache=None)
    ours = {"seed": 3, "dtype": "float16", "decoder": "zune"}
    loader = brimful.DataLoader(dataset, 8, shuffle=True, num_workers=1, **ours, **json.loads(options))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", devices=2, strategy="ddp", enable_checkpointing=False, **quiet
    )
    module = Module()
    trainer.fit(module, loader)
    used = trainer.train_dataloader
    found = {
        "rank": trainer.global_rank,
        "engine": used.explain().engine,
        "options": {name: getattr(used, name) for name in ours},
        "epochs": module.epochs,
    }
    Path(out, f"{trainer.global_rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
