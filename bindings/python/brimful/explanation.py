"""What a loader does where, in words and as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Stage:
    """One stage of a loader.

    Attributes:
        name: what it does.
        place: where it runs.
        why: why there, or with what.
    """

    name: str
    place: str
    why: str = ""


@dataclass(frozen=True)
class Explanation:
    """Printed, it is a short text; its attributes are for programs.

    Attributes:
        engine: "native", "torch" where torch's own machinery does the work, or "python" where no step is native.
        native: steps that run natively, in order.
        python: steps that run in Python, in order.
        reasons: why the engine is torch's, or why a step runs in Python.
        notes: what else is worth knowing.
        stages: the same stage by stage, for what a `DataLoader` does.
    """

    engine: str
    native: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    stages: tuple[Stage, ...] = ()

    def __str__(self) -> str:
        lines = [f"engine  {self.engine}"]
        if self.stages:
            lines += _table(self.stages)
        else:
            lines += [f"{name:<7} {', '.join(steps) or '-'}" for name, steps in self._sides()]
        lines += [f"why     {reason}" for reason in self.reasons]
        lines += [f"note    {note}" for note in self.notes]
        return "\n".join(lines)

    def _sides(self) -> list[tuple[str, tuple[str, ...]]]:
        return [("native", self.native), ("python", self.python)]


def stream_notes(dataset) -> tuple[str, ...]:
    """What it costs that a data set is a stream, if it is one."""
    if not dataset.is_stream:
        return ()
    return (
        "a stream of shards: no length, no samples by number, shuffled through a window instead of exactly, "
        'resumed by reading up to the place; uncompressed shards, or access="indexed", have none of these limits',
    )


def io_notes(dataset) -> tuple[str, ...]:
    """What the storage's profile says, where the data set follows one."""
    profile = dataset.native.io_profile
    return () if profile is None else (f"the profile of this storage says: read by {profile}",)


def transform_steps(names: tuple[str, ...], python: tuple) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Native and Python steps of a transform, by name."""
    return names, tuple(getattr(step, "__qualname__", type(step).__name__) for step in python)


def explain_loader(loader: Any) -> Explanation:
    """What a `DataLoader` does where."""
    return _torch_loader(loader) if loader._engine is None else _native_loader(loader)


def _native_loader(loader: Any) -> Explanation:
    source, engine = loader._source, loader._engine
    decode, read = engine.native.threads
    names, _ = transform_steps(source.compiled.names, ())
    is_whole = loader._auto_collation
    stages = [
        _order(loader),
        Stage("read", _threads(read), _reading(source)),
        Stage("decode", _threads(decode), "and the GPU's JPEG engines" if engine.options["device"] != "cpu" else ""),
        *(Stage(name, _threads(decode)) for name in names),
    ]
    staged = loader._stages
    if staged is None:
        how = "as torch's default_collate makes it" if is_whole else ""
        stages.append(Stage("batch" if is_whole else "sample", _threads(decode), how))
    python: tuple[str, ...] = ()
    if staged is not None:
        python = staged.names
        where, *_ = staged.notes()
        place, _, why = where.removeprefix("Python steps run in ").partition(": ")
        reasons = [source.compiled.reason or why, *[""] * len(python)]
        stages += [Stage(name, f"Python, {place}", reason) for name, reason in zip(python, reasons, strict=False)]
    elif source.target_transform is not None:
        python = ("target_transform",)
        stages.append(
            Stage("target_transform", "Python, the consumer's thread", "a Python function, called for each row")
        )
    if loader._device != "cpu":
        copies = "torch's copies, one batch ahead on a stream of its own"
        stages.append(
            Stage(
                "copy",
                loader._device,
                copies if loader._is_copied_by_torch() else "brimful's copies, on a stream of its own",
            )
        )
    return Explanation(
        "native",
        native=("read", "decode", *names, *(("batch",) if staged is None else ())),
        python=python,
        reasons=_reasons(source, staged),
        notes=(
            f"{decode} decode threads, {read} reader threads, seed {engine.options['seed']}",
            *(() if staged is None else staged.notes()),
            *_processes(loader),
            *stream_notes(source),
            *io_notes(source),
        ),
        stages=tuple(stages),
    )


def _reasons(source: Any, staged: Any) -> tuple[str, ...]:
    if staged is not None:
        return () if source.compiled.reason is None else (source.compiled.reason,)
    if source.target_transform is None:
        return ()
    return ("target_transform is a Python function, called for each row",)


def _torch_loader(loader: Any) -> Explanation:
    from .dataset import ShardDataset

    place = "the main process" if loader.num_workers == 0 else f"{loader.num_workers} worker processes"
    stages = [Stage("order", "Python, the main process", "torch's samplers")]
    reason = loader._reasons[0]
    dataset = loader.dataset
    native: tuple[str, ...] = ()
    python: tuple[str, ...] = ("dataset", "collate_fn")
    notes: tuple[str, ...] = ()
    if isinstance(dataset, ShardDataset):
        names, steps = transform_steps(dataset.compiled.names, dataset.compiled.python)
        target = ("target_transform",) if dataset.target_transform is not None else ()
        native = ("read", "decode", *names)
        python = (*steps, *target, "collate_fn")
        notes = (f"samples are made one by one in {place}",)
        stages += [Stage(name, f"native, in {place}", "one sample at a time") for name in native]
    stages += [Stage(name, f"Python, {place}", reason if name == python[0] else "") for name in python]
    if loader._device != "cpu":
        stages.append(Stage("copy", loader._device, "torch's copies, one batch ahead on a stream of its own"))
    return Explanation("torch", native, python, tuple(loader._reasons), notes, tuple(stages))


def _order(loader: Any) -> Stage:
    options = loader._engine.options
    if loader._batching is not None:
        giver = loader.batch_sampler if loader._batching.sampler is None else loader.sampler
        return Stage("order", "Python, the consumer's thread", f"{type(giver).__name__} gives the numbers of samples")
    rank, world_size = options["split"]
    share = f", share {rank} of {world_size}" if world_size > 1 else ""
    if not options["shuffle"]:
        return Stage("order", "native", f"as stored{share}")
    window = options["shuffle_window"]
    through = "all samples" if window is None else f"through a window of {window}"
    return Stage("order", "native", f"shuffled, {through}, seed {options['seed']}{share}")


def _reading(source: Any) -> str:
    from .sources import Folder

    if isinstance(source, Folder):
        return f"{len(source.paths)} files of a folder"
    parts = getattr(source, "parts", None)
    if parts is not None:
        return f"{source.native.samples} samples of {len(parts)} parts"
    return f"{len(source.paths)} shards"


def _threads(count: int) -> str:
    return f"native, {count} thread" + ("s" if count != 1 else "")


def _processes(loader: Any) -> tuple[str, ...]:
    """What becomes of arguments that are about worker processes."""
    notes = []
    if loader._stages is None and loader.worker_init_fn is not None:
        notes.append(
            "worker_init_fn is not called: it prepares worker processes, and no Python code runs on samples here"
        )
    if loader._stages is None and loader.multiprocessing_context is not None:
        notes.append("multiprocessing_context has no effect: threads do the work")
    if loader.persistent_workers:
        notes.append("threads live from epoch to epoch anyway, so persistent_workers changes nothing")
    if not loader._engine.options["in_order"]:
        notes.append(
            "in_order=False: a batch that is ready overtakes others; state_dict counts what came without gaps, so "
            "that batches that overtook one come twice after a resume, and none is lost"
        )
    return tuple(notes)


def _table(stages: tuple[Stage, ...]) -> list[str]:
    rows = [("stage", "runs in", "why")] + [(stage.name, stage.place, stage.why) for stage in stages]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return ["  ".join((row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2])).rstrip() for row in rows]
