"""`brimful bench loader --train MODEL`: how close training fed by the loader comes to training on data that is on the
GPU already. Both take turns in one process. Loaders without training are measured by the native command.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

from . import __version__, _native, transforms
from .command import cores, machine, out_file, positive, seconds, write_whole
from .dataset import ShardDataset, cache_folder
from .errors import BrimfulError, DataWarning, FieldValueError, InvalidOptionError, MissingFieldError
from .loader import Loader
from .progress import ProgressLine

_IMAGE_FIELD = "jpg;jpeg;png;webp"
_DEMO_SHARDS = 4
# Bad images that are told one by one.
_TOLD = 5
# Batches before a stretch is measured: queues settle, and so does the split between processor and JPEG engines.
_WARM_STEPS = 60
_WARM_STEPS_LATER = 20


def main(argv: list[str]) -> int:
    """Runs the bench; returns the exit code: 0 done, 1 with bad images left out, 2 failed or wrong usage."""
    arguments = _parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            # Told at the end, from the list of bad samples.
            warnings.simplefilter("ignore", DataWarning)
            report = measure(arguments)
        document = json.dumps(report, indent=2)
        if arguments.out is not None:
            write_whole(arguments.out, document + "\n")
        print(document if arguments.json else table(report))
    except (BrimfulError, OSError, ArithmeticError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 2
    return 1 if report["bad_samples"] else 0


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains in turns on resident and on loaded batches."""
    try:
        from .bench_model import Trainee, resident
    except ImportError as error:
        raise InvalidOptionError(f"training needs torch: {error}", hint="pip install torch torchvision") from error
    trainee = Trainee(arguments.train, arguments.device)
    shards, folder = _shards(arguments)
    loader, labelled = _loader(shards, arguments)
    batches = _endless(loader, labelled, trainee.device)
    kept = resident(batches)
    line, steps = ProgressLine("training"), 2 * arguments.rounds
    rounds: list[dict[str, Any]] = []
    for number in range(arguments.rounds):
        stretch: dict[str, Any] = {"round": number}
        # Whatever changes in the course of time meets one as first and the other as second as often.
        for place, name in enumerate(("resident", "fed") if number % 2 == 0 else ("fed", "resident")):
            line(2 * number + place, steps)
            if name == "resident":
                stretch[name] = trainee.train(kept, seconds=arguments.seconds)
            else:
                warm_steps = arguments.warm_steps if number == 0 else min(arguments.warm_steps, _WARM_STEPS_LATER)
                stretch[name] = trainee.train(
                    batches, seconds=arguments.seconds, warm_steps=warm_steps, stats=loader.stats
                )
        rounds.append(stretch)
    line(steps, steps)
    return _report(arguments, loader, rounds, folder)


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [f"{'':<12}{'images/s':>10}{'spread':>9}{'CPU s per 1,000':>17}{'SM %':>7}{'JPEG %':>8}"]
    for name in ("resident", "fed"):
        rate = report["spread"][f"{name}_images_per_s"]
        farthest = max(rate["max"] - rate["median"], rate["median"] - rate["min"]) / max(rate["median"], 1e-9)
        cells = f"{rate['median']:>10,.0f}{farthest:>8.1%} {report[name]['cpu_s_per_1000_images']:>16.2f}"
        cells += "".join(_percent(report[name][key], width) for key, width in (("sm_percent", 7), ("jpeg_percent", 8)))
        lines.append(f"{name:<12}{cells}")
    ratio = report["spread"]["ratio"]
    lines += [
        "",
        f"fed / resident      {ratio['median']:.3f} ({ratio['min']:.3f} to {ratio['max']:.3f})",
        f"waited for data     {report['steps_waiting_share']:.1%} of the steps, {report['wait_share']:.1%} of the time",
        f"decoding            {report['threads']} threads, decoder {report['decoder']}, on {report['device']}",
        f"bottleneck          {report['bottleneck']}",
        "",
        f"{report['model']}, batches of {report['batch_size']}; {report['data']['samples'] or 'streamed'} "
        f"samples in {report['data']['shards']} shards; median of {len(ratio['runs'])} rounds",
    ]
    return "\n".join(lines)


def _report(
    arguments: argparse.Namespace, loader: Any, rounds: list[dict[str, Any]], folder: str | None
) -> dict[str, Any]:
    stats, dataset = loader.stats(), loader.dataset
    bad = loader.bad_samples()
    for sample in bad[:_TOLD]:
        print(f"warning: left out: {sample['message']}", file=sys.stderr)
    if len(bad) > _TOLD:
        print(f"warning: {len(bad) - _TOLD} more bad images left out", file=sys.stderr)

    def median(kind: str, key: str) -> float | None:
        known = [stretch[kind][key] for stretch in rounds if stretch[kind].get(key) is not None]
        return statistics.median(known) if known else None

    def figures(kind: str) -> dict[str, Any]:
        return {
            "images_per_s": median(kind, "images_per_s"),
            "cpu_s_per_1000_images": median(kind, "cpu_s_per_1000"),
            "cpu_percent": median(kind, "cpu_percent"),
            "sm_percent": median(kind, "sm_percent"),
            "jpeg_percent": median(kind, "jpeg_percent"),
            "engine_images_share": median(kind, "engine_images_share"),
        }

    return {
        "version": __version__,
        "machine": machine(),
        "model": arguments.train,
        "device": arguments.device,
        "decoder": arguments.decoder,
        "batch_size": arguments.batch_size,
        "threads": stats["decode_threads"],
        "ratio": statistics.median(_ratios(rounds)),
        "steps_waiting_share": median("fed", "steps_waiting_share"),
        "wait_share": median("fed", "wait_share"),
        "tensors_early_share": median("fed", "tensors_early_share"),
        "resident": figures("resident"),
        "fed": figures("fed"),
        "bottleneck": stats["bottleneck"],
        "stages": stats["stages"],
        "loader": {name: part for name, part in stats.items() if name not in ("stages", "bottleneck")},
        "spread": {
            "ratio": _spread(_ratios(rounds)),
            "resident_images_per_s": _spread([stretch["resident"]["images_per_s"] for stretch in rounds]),
            "fed_images_per_s": _spread([stretch["fed"]["images_per_s"] for stretch in rounds]),
        },
        "data": {
            "shards": len(dataset.paths),
            "samples": None if dataset.is_stream else len(dataset),
            "folder": folder,
        },
        "bad_samples": len(bad),
        "rounds": rounds,
    }


def _shards(arguments: argparse.Namespace) -> tuple[list[str], str | None]:
    """The shards asked for; otherwise generated photos in the cache folder, where the native bench finds them too."""
    if arguments.shards is not None:
        return [arguments.shards], None
    cache = cache_folder(True) or tempfile.gettempdir()
    folder = os.path.join(cache, f"photos-{arguments.samples}")
    print(f"data: {arguments.samples} generated photos in {folder}, kept for later runs", file=sys.stderr)
    paths = _native.make_demo_shards(
        folder,
        samples=arguments.samples,
        shards=min(_DEMO_SHARDS, arguments.samples),
        seed=0,
        threads=arguments.num_workers or cores(),
        progress=ProgressLine("making photos"),
    )
    return [os.fspath(path) for path in paths], folder


def _loader(shards: list[str], arguments: argparse.Namespace) -> tuple[Any, bool]:
    from .dataloader import DataLoader

    labelled = _has_labels(shards)
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(arguments.image_size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    fields = (_IMAGE_FIELD, "cls") if labelled else (_IMAGE_FIELD,)
    dataset = ShardDataset(shards, fields=fields, transform=transform)
    if not dataset.is_stream and len(dataset) < arguments.batch_size:
        raise InvalidOptionError(
            f"{len(dataset)} samples do not fill one batch of {arguments.batch_size}",
            hint="give a smaller --batch-size",
        )
    loader = DataLoader(
        dataset,
        batch_size=arguments.batch_size,
        shuffle=True,
        num_workers=arguments.num_workers,
        drop_last=True,
        on_error="skip",
        decoder=arguments.decoder,
        # A loader for the host needs no word about it.
        **({} if arguments.device == "cpu" else {"device": arguments.device}),
    )
    return loader, labelled


def _has_labels(shards: list[str]) -> bool:
    """Whether the first sample has a label that is a whole number."""
    try:
        column = next(iter(Loader(ShardDataset(shards, fields="cls"), 1)))
    except (MissingFieldError, FieldValueError, StopIteration):
        return False
    return str(getattr(column, "dtype", "")) == "int64"


def _endless(loader: Any, labelled: bool, device: Any) -> Iterator[tuple[Any, Any]]:
    import torch

    columns = None
    while True:
        for columns in loader:
            if labelled:
                yield columns[0], columns[1]
            else:
                yield columns[0], torch.zeros(len(columns[0]), dtype=torch.int64, device=device)
        if columns is None:
            raise InvalidOptionError("there is not one full batch of good images", hint="give a smaller --batch-size")


def _ratios(rounds: list[dict[str, Any]]) -> list[float]:
    return [round(stretch["fed"]["images_per_s"] / stretch["resident"]["images_per_s"], 4) for stretch in rounds]


def _spread(runs: list[float]) -> dict[str, Any]:
    return {"median": statistics.median(runs), "min": min(runs), "max": max(runs), "runs": runs}


def _percent(value: float | None, width: int) -> str:
    return f"{'?' if value is None else round(value):>{width}}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="brimful bench loader",
        description="Train a model on batches of the loader and, in turns, on batches that are on the GPU already: "
        "images a second of both, their ratio, and how often training waited for data.",
    )
    parser.add_argument(
        "--train", metavar="MODEL", required=True, help="a torchvision classifier: resnet50, resnet18, ..."
    )
    parser.add_argument("--device", default="cuda", help='"cuda", "cuda:1", or "cpu" for a try (%(default)s)')
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--shards", metavar="PATTERN", help="shards to load; generated photos unless given")
    source.add_argument(
        "--samples", metavar="N", type=positive, default=3000, help="photos to make without --shards (%(default)s)"
    )
    parser.add_argument("--batch-size", metavar="N", type=positive, default=256, help="images of a batch (%(default)s)")
    parser.add_argument(
        "--num-workers", "--threads", metavar="N", type=positive, default=0, help="decode threads (all cores)"
    )
    parser.add_argument(
        "--decoder", default="auto", help="who decodes JPEG: auto, cpu, gpu, or a decoder of the CPU (%(default)s)"
    )
    parser.add_argument("--image-size", metavar="N", type=positive, default=224, help="height and width (%(default)s)")
    parser.add_argument("--seconds", metavar="S", type=seconds, default=5.0, help="of each stretch (%(default)s)")
    parser.add_argument("--rounds", "--runs", metavar="N", type=positive, default=5, help="(%(default)s)")
    parser.add_argument(
        "--warm-steps", metavar="N", type=positive, default=_WARM_STEPS, help="before the first stretch (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--out", metavar="FILE", type=out_file, help="write the JSON document to FILE as well")
    return parser
