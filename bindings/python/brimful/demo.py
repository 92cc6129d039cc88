"""`brimful demo`: a small shard set of generated photos, loaded as for training, and what that tells."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from typing import Any

from . import __version__, _native, transforms
from .arrays import torch_is_there
from .command import cores, machine, out_file, positive, write_whole
from .dataset import ShardDataset
from .errors import BrimfulError, DataWarning, NotFoundError
from .progress import ProgressLine

_SHARDS = 4
_EPOCHS = 2
# Bad images that are told one by one.
_TOLD = 5


def main(argv: list[str]) -> int:
    """Runs the demo; returns the exit code: 0 done, 1 with bad images left out, 2 failed or wrong usage."""
    arguments = _parser().parse_args(argv)
    try:
        report = measure(_shards(arguments), arguments)
        document = json.dumps(report, indent=2)
        if arguments.out is not None:
            write_whole(arguments.out, document + "\n")
        print(document if arguments.json else table(report))
    except (BrimfulError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 2
    return 1 if report["bad_samples"] else 0


def measure(shards: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Loads two shuffled epochs and says how fast it went.

    `images_per_s` leaves out the first batch, which waits for the threads to start.
    """
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(arguments.image_size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    # The label is left out: shards of any kind that hold images can be tried.
    dataset = ShardDataset(shards, fields="jpg;jpeg;png;webp", transform=transform)
    samples = None if dataset.is_stream else len(dataset)
    if samples == 0:
        raise NotFoundError("no image could be loaded: the shards hold no sample")
    if torch_is_there():
        from .dataloader import DataLoader as Chosen
    else:
        from .loader import Loader as Chosen
    batch_size = arguments.batch_size if samples is None else max(1, min(arguments.batch_size, samples))
    loader = Chosen(dataset, batch_size=batch_size, shuffle=True, num_workers=arguments.threads, on_error="skip")
    line = ProgressLine("loading images")
    images, first_images, started = 0, 0, time.perf_counter()
    first = last = started
    with warnings.catch_warnings():
        # They are told below.
        warnings.simplefilter("ignore", DataWarning)
        for _ in range(_EPOCHS):
            for batch in loader:
                last = time.perf_counter()
                images += len(batch)
                if first_images == 0:
                    first, first_images = last, len(batch)
                line(images, _EPOCHS * samples if samples is not None else images + 1)
    stats = loader.stats()
    bad = loader.bad_samples()
    if images == 0:
        reason = bad[0]["message"] if bad else "the shards hold none"
        raise NotFoundError(f"no image could be loaded: {reason}")
    for sample in bad[:_TOLD]:
        print(f"warning: left out: {sample['message']}", file=sys.stderr)
    if len(bad) > _TOLD:
        print(f"warning: {len(bad) - _TOLD} more bad images left out", file=sys.stderr)
    steady = images > first_images
    rate = (images - first_images) / (last - first) if steady else images / max(last - started, 1e-9)
    return {
        "version": __version__,
        "machine": machine(),
        "loader": f"brimful.{Chosen.__name__}",
        "jpeg": _native.jpeg_backends[0],
        "images_per_s": rate,
        "time_to_first_batch_s": first - started,
        "bottleneck": stats["bottleneck"],
        "stages": stats["stages"],
        "images": images,
        "epochs": _EPOCHS,
        "batch_size": batch_size,
        "threads": stats["decode_threads"],
        "shards": len(dataset.paths),
        "bad_samples": len(bad),
    }


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    rows = [
        (
            "loaded",
            f"{report['images']} images in {report['epochs']} epochs, shuffled, batches of {report['batch_size']}",
        ),
        ("by", f"{report['loader']}, JPEG by {report['jpeg']}"),
        ("images/s", f"{report['images_per_s']:,.0f} on {report['threads']} decode threads"),
        ("first batch", f"{report['time_to_first_batch_s']:.3f} s"),
        ("bottleneck", report["bottleneck"]),
    ]
    lines = [f"{name:<12}{value}" for name, value in rows]
    lines += ["", f"{'stage':<12}{'items':>8}{'failures':>10}{'busy':>8}{'waiting':>9}"]
    for name, stage in report["stages"].items():
        counts = f"{stage['items']:>8}{stage['failures']:>10}"
        lines.append(f"{name:<12}{counts}{stage['busy_share']:>8.0%}{stage['wait_share']:>9.0%}")
    return "\n".join(lines)


def _shards(arguments: argparse.Namespace) -> list[str]:
    if arguments.shards is not None:
        return [arguments.shards]
    paths = _native.make_demo_shards(
        arguments.dir,
        samples=arguments.samples,
        shards=min(_SHARDS, arguments.samples),
        seed=arguments.seed,
        threads=arguments.threads or cores(),
        progress=ProgressLine("making photos"),
    )
    return [os.fspath(path) for path in paths]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="brimful demo",
        description="Make a small shard set from generated photos, load it as for training, "
        "and print images a second and the bottleneck.",
    )
    parser.add_argument("--shards", metavar="PATTERN", help="load these shards instead of making some")
    parser.add_argument("--samples", metavar="N", type=positive, default=3000, help="photos to make (%(default)s)")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="what the photos derive from (%(default)s)")
    parser.add_argument("--dir", metavar="FOLDER", default="target/demo", help="where they are kept (%(default)s)")
    parser.add_argument("--batch-size", metavar="N", type=positive, default=256, help="images of a batch (%(default)s)")
    parser.add_argument("--image-size", metavar="N", type=positive, default=224, help="height and width (%(default)s)")
    parser.add_argument("--threads", metavar="N", type=positive, default=0, help="decode threads (all cores)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--out", metavar="FILE", type=out_file, help="write the JSON document to FILE as well")
    return parser
