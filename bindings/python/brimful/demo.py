"""`brimful demo`: a small shard set of generated photos, loaded as for training, and what that tells."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import Any

from . import __version__, _native, transforms
from .arrays import torch_is_there
from .dataset import ShardDataset
from .errors import BrimfulError
from .progress import ProgressLine

_SHARDS = 4
_EPOCHS = 2


def main(argv: list[str]) -> int:
    """Runs the demo; returns the exit code: 0 done, 2 failed or wrong usage."""
    arguments = _parser().parse_args(argv)
    try:
        pattern = arguments.shards or make_photos(Path(arguments.dir), arguments.samples, arguments.seed)
        report = measure(pattern, arguments)
        text = json.dumps(report, indent=2) if arguments.json else table(report)
        if arguments.out is None:
            print(text)
        else:
            _write(Path(arguments.out), text + "\n")
    except (BrimfulError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 2
    return 0


def measure(pattern: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Loads two shuffled epochs and says how fast it went."""
    size = arguments.image_size
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    # The label is left out: shards of any kind that hold images can be tried.
    dataset = ShardDataset(pattern, fields="jpg;jpeg;png;webp", transform=transform)
    options = {"batch_size": arguments.batch_size, "shuffle": True, "num_workers": arguments.threads}
    if torch_is_there():
        from .dataloader import DataLoader as Chosen
    else:
        from .loader import Loader as Chosen
    loader = Chosen(dataset, **options)
    line = ProgressLine("loading")
    epochs, seen, of = [], 0, _EPOCHS * (len(dataset) if not dataset.is_stream else 0)
    for _ in range(_EPOCHS):
        started, images = time.perf_counter(), 0
        for batch in loader:
            images += len(batch)
            seen += len(batch)
            line(seen, of)
        seconds = time.perf_counter() - started
        epochs.append({"images": images, "seconds": seconds, "images_per_s": images / seconds})
    stats = loader.stats()
    return {
        "version": __version__,
        "machine": {"system": platform.platform(), "cpus": os.cpu_count(), "python": platform.python_version()},
        "loader": f"brimful.{Chosen.__name__}",
        "jpeg": _native.jpeg_backends[0],
        "batch_size": arguments.batch_size,
        "threads": stats["decode_threads"],
        "images_per_s": sum(e["images"] for e in epochs) / sum(e["seconds"] for e in epochs),
        "time_to_first_batch_s": stats["time_to_first_batch_s"],
        "bottleneck": stats["bottleneck"],
        "epochs": epochs,
        "stages": stats["stages"],
    }


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    rows = [
        ("loader", f"{report['loader']}, JPEG by {report['jpeg']}"),
        ("images/s", f"{report['images_per_s']:,.0f} with {report['threads']} threads"),
        ("first batch", f"{1000 * (report['time_to_first_batch_s'] or 0):.0f} ms"),
        ("bottleneck", report["bottleneck"]),
    ]
    lines = [f"{name:<12} {value}" for name, value in rows]
    lines += ["", f"{'stage':<12} {'items':>8} {'failures':>8} {'busy':>6} {'waits':>6}"]
    for name, stage in report["stages"].items():
        counts = f"{stage['items']:>8} {stage['failures']:>8}"
        lines.append(f"{name:<12} {counts} {stage['busy_share']:>6.0%} {stage['wait_share']:>6.0%}")
    return "\n".join(lines)


def make_photos(folder: Path, samples: int, seed: int) -> str:
    """Shards of generated photos in `folder`, made on all cores or found there; returns a pattern of them."""
    line = ProgressLine("making photos")
    # Natively there is nobody to look at Python's flag: Ctrl-C ends the process itself.
    former = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        shards = min(_SHARDS, samples)
        paths = _native.make_demo_shards(folder, samples=samples, shards=shards, seed=seed, progress=line)
    finally:
        signal.signal(signal.SIGINT, former)
    return "::".join(str(path) for path in paths)


def _write(path: Path, text: str) -> None:
    """Writes a whole file or none."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="brimful demo",
        description="Make a small shard set from generated photos, load it as for training, "
        "and print images a second and the bottleneck.",
    )
    parser.add_argument("--shards", metavar="PATTERN", help="load these shards instead of making some")
    parser.add_argument("--dir", default="target/demo", help="where made shards are kept (%(default)s)")
    parser.add_argument("--samples", type=_positive, default=3000, help="photos to make (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="what the photos derive from (%(default)s)")
    parser.add_argument("--batch-size", type=_positive, default=128, help="images of a batch (%(default)s)")
    parser.add_argument("--image-size", type=_positive, default=224, help="height and width (%(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="decode threads, 0 for all cores (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--out", metavar="FILE", help="write to a file instead of printing")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not 1 or more")
    return value
