"""The peers of a comparison: the same job on each loader, measured in a process of its own.

peers.py PEER JOB: JOB is a JSON object with data, batch_size, workers, warm_batches and seconds; prints one JSON line.
The job: RandomResizedCrop(224), flip, normalise, batches of float32 `[N, 3, 224, 224]` in host memory. It compares
nothing; see compare.py.
"""

import json
import os
import sys
import time
from pathlib import Path

SIZE = 224
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def webdataset_pil(job):
    import webdataset

    shards = sorted(str(path) for path in Path(job["data"], "shards").glob("*.tar"))
    dataset = webdataset.WebDataset(shards, shardshuffle=100, resampled=True).shuffle(1000).decode("pil")
    dataset = dataset.to_tuple("jpg", "cls").map_tuple(pil_transform(), lambda label: label)
    dataset = dataset.batched(job["batch_size"], partial=False)
    return webdataset.WebLoader(dataset, batch_size=None, num_workers=job["workers"])


def torch_pil(job):
    from torchvision.datasets import ImageFolder

    return torch_loader(job, ImageFolder(f"{job['data']}/folder", pil_transform()))


def torch_torchvision_io(job):
    import torch
    from torchvision.datasets import DatasetFolder
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms import v2

    transform = v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )

    def load(path):
        return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)

    return torch_loader(job, DatasetFolder(f"{job['data']}/folder", load, extensions=("jpg",), transform=transform))


def brimful(job):
    from brimful import DataLoader, ShardDataset
    from brimful import transforms as T

    transform = T.Compose([T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])
    dataset = ShardDataset(f"{job['data']}/shards", fields=("jpg", "cls"), transform=transform)
    return DataLoader(dataset, batch_size=job["batch_size"], shuffle=True, num_workers=job["workers"], drop_last=True)


PEERS = {
    "webdataset + PIL": webdataset_pil,
    "torch DataLoader + PIL": torch_pil,
    "torch DataLoader + torchvision.io": torch_torchvision_io,
    "brimful": brimful,
}


def torch_loader(job, dataset):
    from torch.utils.data import DataLoader

    return DataLoader(
        dataset,
        batch_size=job["batch_size"],
        shuffle=True,
        num_workers=job["workers"],
        drop_last=True,
        persistent_workers=True,
    )


def pil_transform():
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.RandomResizedCrop(SIZE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def measure(name, job):
    """Counts images from the end of the warm-up until the time is over, and the processor time they took."""
    start = time.perf_counter()
    loader = PEERS[name](job)
    batches = endless(loader)
    check_batch(next(batches), job)
    first_batch_s = time.perf_counter() - start
    for _ in range(job["warm_batches"] - 1):
        next(batches)
    cpu_start, others_start, begin = tree_cpu_s(), machine_cpu_s(), time.perf_counter()
    images, wall_s = 0, 0.0
    while wall_s < job["seconds"]:
        images += len(next(batches)[0])
        wall_s = time.perf_counter() - begin
    cpu_s = tree_cpu_s() - cpu_start
    others_s = machine_cpu_s() - others_start - cpu_s
    return {
        "peer": name,
        "images": images,
        "images_per_s": round(images / wall_s, 1),
        "cpu_s_per_1000": round(cpu_s / images * 1000, 3),
        "first_batch_s": round(first_batch_s, 2),
        # What else ran on the machine meanwhile, in cores: the reader's measure of trust.
        "others_cores": round(max(others_s, 0.0) / wall_s, 2),
    }


def endless(loader):
    while True:
        yield from loader


def check_batch(batch, job):
    images = batch[0]
    expected = (job["batch_size"], 3, SIZE, SIZE)
    if tuple(images.shape) != expected or str(images.dtype) not in ("torch.float32", "float32"):
        sys.exit(f"error: a batch of {tuple(images.shape)} {images.dtype}, not of {expected} float32")


def tree_cpu_s():
    """Processor seconds of this process and all below it, those that ended included."""
    children, seconds = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(fields[1]), []).append(int(entry))
            seconds[int(entry)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    waiting, total = [os.getpid()], 0.0
    while waiting:
        process = waiting.pop()
        total += seconds.get(process, 0.0)
        waiting.extend(children.get(process, ()))
    return total


def machine_cpu_s():
    with open("/proc/stat") as stat:
        fields = [int(field) for field in stat.readline().split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    result = measure(sys.argv[1], json.loads(sys.argv[2]))
    print(json.dumps(result), flush=True)
    # Workers that would go on for ever are not waited for.
    os._exit(0)
