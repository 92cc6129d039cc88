"""Trains on every GPU of every machine of a job, each process on its own share of the samples.

torchrun --nproc-per-node=4 torchrun.py [SHARDS], or by Slurm with slurm.sbatch. `split="rank"` shares the samples out
one by one: every rank gets as many batches as the others, also where there are fewer shards than ranks. Wherever the
job is stopped, the state of any rank resumes all of them, also in another number.
"""

import os

import tiny
import torch
import torch.distributed as dist

import brimful
from brimful import transforms as T

EPOCHS = 2


def main() -> None:
    has_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if has_gpu else "gloo")
    device = "cpu"
    if has_gpu:
        # torchrun shows every process all GPUs of the machine; Slurm's --gpus-per-task=1 shows it one, as cuda:0.
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        device = f"cuda:{torch.cuda.current_device()}"

    shards = tiny.shards()
    steps = [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]
    dataset = brimful.ShardDataset(shards, fields=tiny.FIELDS, transform=T.Compose(steps))
    loader = brimful.DataLoader(dataset, batch_size=8, shuffle=True, split="rank", device=device)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, tiny.CLASSES)).to(device)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)

    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        samples = torch.zeros((), dtype=torch.int64, device=device)
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels % tiny.CLASSES)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            samples += len(labels)
        dist.all_reduce(samples)
        if dist.get_rank() == 0:
            ranks = dist.get_world_size()
            print(f"epoch {epoch}: {samples.item()} samples on {ranks} ranks, loss {loss.item():.3f}", flush=True)
    tiny.remove(shards)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
