"""Trains with the Trainer of Transformers, which makes loaders itself: the methods that it does so by are overridden.

huggingface_trainer.py [SHARDS]. Fields given by name make batches that are dicts, as the Trainer passes them to models.
After `resume_from_checkpoint` it skips the batches it had: the rest of that one epoch then comes, in the same order,
from torch's machinery, and native epochs follow.
"""

import tempfile

import tiny
import torch
import transformers

import brimful
from brimful import transforms as T


class Trainer(transformers.Trainer):
    def get_train_dataloader(self) -> torch.utils.data.DataLoader:
        batch_size, seed = self.args.per_device_train_batch_size, self.args.seed
        loader = brimful.DataLoader(self.train_dataset, batch_size, shuffle=True, seed=seed, drop_last=True)
        return self.accelerator.prepare(loader)

    def get_eval_dataloader(self, eval_dataset=None) -> torch.utils.data.DataLoader:
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        return self.accelerator.prepare(brimful.DataLoader(dataset, self.args.per_device_eval_batch_size))


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, tiny.CLASSES))

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(pixel_values)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels % tiny.CLASSES), "logits": logits}


def main() -> None:
    shards = tiny.shards()
    fields = dict(zip(("pixel_values", "labels"), tiny.FIELDS, strict=True))
    normalize = [T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]
    train = brimful.ShardDataset(shards, fields, T.Compose([T.RandomResizedCrop(32), *normalize]))
    evaluation = train.with_options(transform=T.Compose([T.Resize(32), T.CenterCrop(32), *normalize]))
    with tempfile.TemporaryDirectory() as out:
        arguments = transformers.TrainingArguments(
            out, num_train_epochs=2, per_device_train_batch_size=16, report_to=[], save_strategy="no", disable_tqdm=True
        )
        trainer = Trainer(Classifier(), arguments, train_dataset=train, eval_dataset=evaluation)
        trainer.train()
        print(f"evaluation loss {trainer.evaluate()['eval_loss']:.3f}")
    print(trainer.callback_handler.train_dataloader.explain())
    tiny.remove(shards)


if __name__ == "__main__":
    main()
