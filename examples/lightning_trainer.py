"""Trains with Lightning: the trainer takes the loader as it is, with no flags, on one device or many.

lightning_trainer.py [SHARDS]. On several devices Lightning puts a DistributedSampler into the loader; that shares the
samples out natively. Checkpoints hold the loader's place, so training resumes in mid-epoch.
"""

import lightning
import tiny
import torch

import brimful
from brimful import transforms as T


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, tiny.CLASSES))

    def training_step(self, batch, index):
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(images), labels % tiny.CLASSES)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.001)


def main() -> None:
    shards = tiny.shards()
    steps = [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]
    dataset = brimful.ShardDataset(shards, fields=tiny.FIELDS, transform=T.Compose(steps))
    loader = brimful.DataLoader(dataset, batch_size=16, shuffle=True, seed=1, num_workers=2)
    trainer = lightning.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Classifier(), loader)
    print(f"{trainer.global_step} steps")
    print(trainer.train_dataloader.explain())
    tiny.remove(shards)


if __name__ == "__main__":
    main()
