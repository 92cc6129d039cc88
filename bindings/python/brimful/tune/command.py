"""`brimful tune`: arguments, progress, and where the result goes."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys

import torch

from .. import transforms as T
from ..command import out_file, positive, seconds, write_whole
from ..dataset import ShardDataset, cache_folder
from ..errors import BrimfulError
from ..live import Live
from . import run_model

TRIES = ("compile", "channels_last", "amp", "cudagraphs")


def main(argv: list[str]) -> int:
    """Runs the command; returns its exit code."""
    asked = _parser().parse_args(argv)
    from ..dataloader import DataLoader

    device = asked.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        transform = T.Compose(
            [
                T.RandomResizedCrop(asked.image_size),
                T.RandomHorizontalFlip(),
                T.ToTensor(),
                T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        )
        dataset = ShardDataset(asked.shards, fields=(asked.images, asked.labels), transform=transform)
        loader = DataLoader(
            dataset,
            asked.batch_size,
            shuffle=True,
            num_workers=asked.threads,
            device=device if device.startswith("cuda") else None,
        )
        print(f"testing {asked.model} on {device} for about {asked.budget:g} s", file=sys.stderr)
        with Live(loader, name="brimful tune") if asked.live else contextlib.nullcontext():
            outcome = run_model(
                asked.model,
                loader,
                device=device,
                budget_s=asked.budget,
                target=asked.target,
                tries=asked.tries,
                flops=asked.flops,
                memory_bytes=asked.memory_bytes,
            )
        text = json.dumps(outcome, indent=2)
        if asked.out:
            write_whole(asked.out, text + "\n")
        if asked.html:
            write_whole(asked.html, outcome.html())
        keep(text)
    except (BrimfulError, OSError, RuntimeError, ImportError) as error:
        print(f"brimful tune: {error}", file=sys.stderr)
        return 2
    print(text if asked.json else outcome)
    return 0


def keep(text: str) -> None:
    """Leaves the document where `brimful bench storage` looks for what a GPU of this machine asks for."""
    path = os.path.join(cache_folder(True), "tune.json")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_whole(path, text + "\n")
    except (BrimfulError, OSError) as error:
        print(f"warning: not kept for brimful bench storage: {error}", file=sys.stderr)


def _tries(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in TRIES]
    if unknown:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(TRIES)}")
    return names


def _share(text: str) -> float:
    value = float(text)
    if not 0.5 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.5 and 1")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="brimful tune",
        description="Test a model and its data in three stages: the machine, the data path, and both together. "
        "Tells what batch size to take and what holds the run back.",
    )
    parser.add_argument("shards", nargs="+", help="shards with images and labels: files, folders, patterns")
    parser.add_argument(
        "--model", default="torchvision:resnet50", help="torchvision:NAME, timm:NAME or module:function"
    )
    parser.add_argument("--device", help="cuda, cuda:N or cpu; a GPU where there is one")
    parser.add_argument("--budget", type=seconds, default=240.0, metavar="SECONDS", help="time for all stages (240)")
    parser.add_argument("--try", dest="tries", type=_tries, default=[], metavar="NAMES", help=f"of {','.join(TRIES)}")
    parser.add_argument("--target", type=_share, default=0.95, help="share of the best rate that is enough (0.95)")
    parser.add_argument("--batch-size", type=positive, default=256, help="the loader's, in the last stage (256)")
    parser.add_argument("--threads", type=int, default=0, help="threads that decode, 0 for all cores")
    parser.add_argument("--image-size", type=positive, default=224, help="side of the images that are trained on (224)")
    parser.add_argument("--images", default="jpg;jpeg;png;webp", help="extension of images in the shards")
    parser.add_argument("--labels", default="cls", help="extension of labels in the shards")
    parser.add_argument("--flops", type=float, default=0.0, help="operations a sample for the roofline; counted if 0")
    parser.add_argument(
        "--memory-bytes", type=float, default=0.0, help="bytes of device memory a sample moves, if known"
    )
    parser.add_argument("--live", action="store_true", help="show the loader in `brimful top` meanwhile")
    parser.add_argument("--json", action="store_true", help="print the document as JSON")
    parser.add_argument("--out", type=out_file, metavar="FILE", help="write the document to a file")
    parser.add_argument("--html", type=out_file, metavar="FILE", help="write the page to a file")
    return parser
