"""One process of an accelerate job, by torchrun: what it loads, skips and gathers, written as JSON.

accelerate_job.py OUT SHARDS ODD
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator, DataLoaderConfiguration, skip_first_batches

import brimful


def labels_of(loader) -> list[int]:
    return [label for batch in loader for label in batch.tolist()]


def main(out: str, shards: str, odd: str) -> None:
    accelerator = Accelerator(cpu=True)
    rank = accelerator.process_index
    dataset = brimful.ShardDataset(shards, fields="cls", index_cache=None)
    sampler = torch.utils.data.DistributedSampler(dataset, 2, rank, seed=1)
    found = {"rank": rank}
    for name, options in {
        "plain": {"shuffle": True},
        "ranked": {"shuffle": True, "split": "rank"},
        "sampled": {"sampler": sampler},
    }.items():
        loader = accelerator.prepare(brimful.DataLoader(dataset, 7, seed=1, num_workers=1, **options))
        labels = labels_of(loader)
        loader.set_epoch(0)
        skipped = labels_of(skip_first_batches(loader, 1))
        found[name] = {"engine": loader.explain().engine, "labels": labels, "skipped": skipped}

    whole = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(split_batches=True))
    loader = whole.prepare(brimful.DataLoader(dataset, 8, num_workers=1))
    found["split_batches"] = [batch.tolist() for batch in loader]

    gathered = []
    dataset = brimful.ShardDataset(odd, fields="cls", index_cache=None)
    loader = accelerator.prepare(brimful.DataLoader(dataset, 4, num_workers=1))
    for batch in loader:
        gathered += accelerator.gather_for_metrics(batch).tolist()
    found["gathered"] = gathered
    Path(out, f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
