"""Trains with accelerate: `prepare` hands the loader back as it is, on this process's device and share.

accelerate launch accelerate_loop.py [SHARDS], or with python alone on one device.
"""

import accelerate
import tiny
import torch

import brimful
from brimful import transforms as T


def main() -> None:
    accelerator = accelerate.Accelerator(gradient_accumulation_steps=2)
    shards = tiny.shards()
    steps = [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]
    dataset = brimful.ShardDataset(shards, fields=tiny.FIELDS, transform=T.Compose(steps))
    loader = brimful.DataLoader(dataset, batch_size=8, shuffle=True, seed=1)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, tiny.CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for epoch in range(2):
        loader.set_epoch(epoch)
        samples = 0
        for images, labels in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(images), labels % tiny.CLASSES)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            samples += len(accelerator.gather_for_metrics(labels))
        accelerator.print(f"epoch {epoch}: {samples} samples, loss {loss.item():.3f}")
    accelerator.print(loader.explain())
    accelerator.end_training()
    tiny.remove(shards)


if __name__ == "__main__":
    main()
