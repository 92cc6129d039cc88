"""The peers of a comparison: the same job on each loader. It measures nothing; see turns.py and compare.py.

The job: RandomResizedCrop(224), flip, normalise; batches of float32 images `[N, 3, 224, 224]` and whole numbers as
labels, in host memory or on the GPU as `job["device"]` says. `job` also has data, batch_size and workers.
"""

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dali_peer

SIZE = 224
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# What torch's worker processes make ahead, each.
AHEAD = 2


@dataclass
class Source:
    """A loader at work."""

    batches: Iterator[Any]
    # Batches to let pass before each measurement: what was made ahead while others had their turn.
    warm: int
    # Before the first measurement.
    warm_first: int
    # Worker processes deliver in turns, and in bursts: only whole turns are measured.
    cycle: int = 1
    # What a brimful loader tells of itself.
    stats: Callable[[], dict] | None = None


@dataclass(frozen=True)
class Peer:
    make: Callable[[dict], Source]
    # The module without which there is no such peer.
    module: str
    devices: tuple[str, ...] = ("cpu", "cuda")

    def is_there(self) -> bool:
        try:
            return importlib.util.find_spec(self.module) is not None
        except ModuleNotFoundError:
            return False


def webdataset_script(job, package="webdataset"):
    """The same script, on webdataset or on brimful's stand-in for it."""
    webdataset = importlib.import_module(package)
    shards = sorted(str(path) for path in Path(job["data"], "shards").glob("*.tar"))
    dataset = webdataset.WebDataset(shards, shardshuffle=100, resampled=True).shuffle(1000).decode("pil")
    dataset = dataset.to_tuple("jpg", "cls").map_tuple(pil_transform(), int)
    dataset = dataset.batched(job["batch_size"], partial=False)
    loader = webdataset.WebLoader(
        dataset,
        batch_size=None,
        num_workers=job["workers"],
        prefetch_factor=AHEAD,
        pin_memory=job["device"] == "cuda",
    )
    return of_processes(job, loader)


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


def brimful(job, decoder="auto"):
    loader = brimful_loader(job, decoder)
    # The split between processor and JPEG engines settles within 50 batches.
    return Source(endless(loader), warm=20, warm_first=60, stats=loader.stats)


def brimful_loader(job, decoder="auto", **options):
    """A loader of the job; `options` are those of brimful.DataLoader."""
    from brimful import DataLoader, ShardDataset
    from brimful import transforms as T

    steps = options.pop("steps", None) or [T.ToTensor(), T.Normalize(MEAN, STD)]
    transform = T.Compose([T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip(), *steps])
    dataset = ShardDataset(f"{job['data']}/shards", fields=("jpg", "cls"), transform=transform)
    if job["device"] != "cpu":
        options = {"device": job["device"], "decoder": decoder, **options}
    options = {"batch_size": job["batch_size"], "num_workers": job["workers"], **options}
    return DataLoader(dataset, shuffle=True, drop_last=True, **options)


def dali(job, decoder="cpu", load=0.0):
    return Source(dali_peer.batches(job, decoder, load), warm=2 * dali_peer.QUEUE, warm_first=4 * dali_peer.QUEUE)


PEERS = {
    "webdataset + PIL": Peer(webdataset_script, "webdataset"),
    "the webdataset script on brimful": Peer(partial(webdataset_script, package="brimful.webdataset"), "brimful"),
    "torch DataLoader + PIL": Peer(torch_pil, "torchvision"),
    "torch DataLoader + torchvision.io": Peer(torch_torchvision_io, "torchvision"),
    "DALI cpu": Peer(dali, "nvidia.dali"),
    "DALI mixed 0": Peer(partial(dali, decoder="mixed"), "nvidia.dali", ("cuda",)),
    "DALI mixed 0.5": Peer(partial(dali, decoder="mixed", load=0.5), "nvidia.dali", ("cuda",)),
    "DALI mixed 0.9": Peer(partial(dali, decoder="mixed", load=0.9), "nvidia.dali", ("cuda",)),
    "brimful": Peer(brimful, "brimful", ("cpu",)),
    "brimful cpu": Peer(partial(brimful, decoder="cpu"), "brimful", ("cuda",)),
    "brimful gpu": Peer(partial(brimful, decoder="gpu"), "brimful", ("cuda",)),
    "brimful auto": Peer(brimful, "brimful", ("cuda",)),
}


def torch_loader(job, dataset):
    from torch.utils.data import DataLoader

    loader = DataLoader(
        dataset,
        batch_size=job["batch_size"],
        shuffle=True,
        num_workers=job["workers"],
        prefetch_factor=AHEAD,
        drop_last=True,
        persistent_workers=True,
        pin_memory=job["device"] == "cuda",
    )
    return of_processes(job, loader)


def of_processes(job, loader):
    batches = endless(loader)
    if job["device"] == "cuda":
        batches = to_gpu(batches)
    ahead = (AHEAD + 1) * job["workers"]
    return Source(batches, warm=ahead, warm_first=ahead, cycle=job["workers"])


def to_gpu(batches):
    """From page-locked memory, as torch's tutorials do it: the program does not wait, the training stream does."""
    for images, labels in batches:
        yield images.to("cuda", non_blocking=True), labels.to("cuda", non_blocking=True)


def endless(loader):
    while True:
        yield from loader


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
