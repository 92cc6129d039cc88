"""Trains in a plain loop, and goes on at the very next sample when it is started again.

plain_loop.py [SHARDS [CHECKPOINT]]: the checkpoint holds the model and the loader's place, a few integers. Stop it at
any moment and start it again, with another number of threads if you like: no sample is lost, none comes twice.
"""

import os
import sys

import tiny
import torch

import brimful
from brimful import transforms as T

EPOCHS = 2


def main() -> None:
    shards = tiny.shards()
    checkpoint = sys.argv[2] if len(sys.argv) > 2 else None
    device = "cuda" if torch.cuda.is_available() else "cpu"

    steps = [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]
    dataset = brimful.ShardDataset(shards, fields=tiny.FIELDS, transform=T.Compose(steps))
    loader = brimful.DataLoader(dataset, batch_size=16, shuffle=True, seed=1, device=device)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, tiny.CLASSES)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)

    if checkpoint is not None and os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
        print(f"goes on in epoch {saved['loader']['epoch']} after {saved['loader']['position']} samples")

    samples, loss = 0, torch.zeros(())
    while (epoch := loader.state_dict()["epoch"]) < EPOCHS:
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels % tiny.CLASSES)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            samples += len(labels)
            if checkpoint is not None:
                torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, checkpoint)
        print(f"epoch {epoch}: {samples} samples so far, loss {loss.item():.3f}")
    if checkpoint is not None:
        torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, checkpoint)
    print(loader.explain())
    tiny.remove(shards)


if __name__ == "__main__":
    main()
