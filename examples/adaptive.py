"""Trains with a batch size that is found while training runs: a plain loop, with and without a fixed global batch.

    python examples/adaptive.py 'train-{000000..000146}.tar' [--global-batch 1024] [--device cuda]

Each change of the batch size is printed with its reason. The learning rate follows the linear rule up to a bound: it
holds for SGD with warm-up and moderate sizes, and beyond some size, which is the model's own, no rule does.
"""

from __future__ import annotations

import argparse

import torch
import torchvision

from brimful import AutoBatch, DataLoader, ShardDataset
from brimful import transforms as T

LEARNING_RATE_MAX = 0.4


def main(argv: list[str] | None = None) -> int:
    """Trains a ResNet-18 for some epochs; returns the batch size that was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shards")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--min", type=int, default=16)
    parser.add_argument("--max", type=int, default=1024)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--global-batch", type=int)
    asked = parser.parse_args(argv)

    model = torchvision.models.resnet18(num_classes=1000).to(asked.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.025, momentum=0.9)

    def on_change(old: int, new: int, lr_scale: float, reason: str) -> None:
        print(f"batches of {new} instead of {old}: {reason}")
        for group in optimizer.param_groups:
            group["lr"] = min(group["lr"] * lr_scale, LEARNING_RATE_MAX)

    size = asked.image_size
    transform = T.Compose([T.RandomResizedCrop(size), T.RandomHorizontalFlip(), T.ToTensor()])
    loader = DataLoader(
        ShardDataset(asked.shards, fields=("jpg;jpeg;png", "cls"), transform=transform),
        batch_size=AutoBatch(min=asked.min, max=asked.max, global_batch=asked.global_batch, on_change=on_change),
        shuffle=True,
        drop_last=True,
        device=None if asked.device == "cpu" else asked.device,
    )
    for _epoch in range(asked.epochs):
        for images, labels in loader:
            with loader.oom_guard(optimizer):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
                # With a global batch each micro-batch has its share of the step, else 1.
                (loss * loader.micro_batch_share).backward()
                if loader.is_last_micro_batch:
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
    tuning = loader.tuning
    print(f"{tuning['phase']} at {tuning['batch_size']} samples a batch, limited by {tuning['limit']}")
    return tuning["batch_size"]


if __name__ == "__main__":
    main()
