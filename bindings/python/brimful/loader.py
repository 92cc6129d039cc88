"""Batches as NumPy arrays, for everyone without torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy

from . import _native, devices, ranks
from .arrays import converter, numpy_column, torch_column, torch_is_there
from .dataset import ShardDataset, own_methods
from .engine import Batches, Controls, Engine, in_worker
from .errors import InvalidOptionError, choice
from .explanation import Explanation, io_notes, stream_notes
from .stages import WISHES, StagedBatches, Stages

__all__ = ["Loader"]


class Loader(Controls):
    """Batches of a `ShardDataset`, each a tuple with one column a field; for a bare string as `fields` that column, and
    for a mapping a dict of columns.

    Images, numbers and arrays are NumPy arrays, texts, bytes and JSON values are lists. Nothing is copied, and arrays
    may be written to.

    What of a transform has no native form runs in Python behind the native threads, as in `DataLoader`; tensors that
    come of it are NumPy arrays then.

    Args:
        dataset: the samples.
        batch_size: rows of a batch.
        shuffle: an exact shuffle of all samples, another one each epoch; of a stream, through a window.
        drop_last: leave out a last batch that is not full.
        num_workers: threads that decode, 0 for all cores this process may use, but one where batches go to a GPU.
        seed: what order and augmentation derive from, with epoch and sample.
        shuffle_window: shuffle shards, and samples among that many shards, so that reads stay close; for a stream,
            the number of samples in the window.
        split: "rank" shares the samples out among the ranks of a distributed job.
        rank, world_size: this process's share, where it cannot be found.
        remainder: how ranks get equal counts: "pad" repeats the first samples, "drop" leaves the last ones out.
        on_error: a bad sample is an error ("raise"), left out ("skip"), or replaced by another ("replace"). Under
            "skip" its batch is shorter by a row, also with drop_last, and a batch without rows is left out: take
            "replace" where every batch must have the same shape.
        max_errors: bad samples allowed an epoch, as a count (int) or a share (float).
        quarantine: a file that gets a JSON line for each bad sample.
        dtype: "float32", "float16", "bfloat16" or "uint8"; None for what the transform makes.
        layout: "NCHW", "channels_last" (NCHW in shape, NHWC in memory) or "NHWC".
        prefetch: batches in flight, 0 for a good number.
        device: "cpu", "cuda" (the first GPU) or "cuda:1": where batches are delivered; a GPU needs arrays="torch" or
            "dlpack" (CuPy and JAX import those).
        device_batches_max: batches that may be held on the GPU at a time, beside those in flight.
        decoder: who decodes JPEG files for a GPU: "cpu" threads, the "gpu"'s JPEG engines, or as rates decide, "auto".
        nvtx: for a GPU, show the stages as named ranges in NVIDIA's profilers.
        stages: where Python steps run: "auto", "threads" or "processes", as in `DataLoader`.
        arrays: "numpy", "torch", or "dlpack" for objects that any framework's `from_dlpack` takes.
    """

    def __init__(
        self,
        dataset: ShardDataset,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        drop_last: bool = False,
        num_workers: int = 0,
        seed: int = 0,
        shuffle_window: int | None = None,
        split: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: str = "pad",
        on_error: str = "raise",
        max_errors: float | None = None,
        quarantine: str | os.PathLike | None = None,
        dtype: str | None = None,
        layout: str = "NCHW",
        prefetch: int = 0,
        arrays: str = "numpy",
        device: str = "cpu",
        device_batches_max: int = 16,
        decoder: str = "auto",
        nvtx: bool = False,
        stages: str = "auto",
    ) -> None:
        if not isinstance(dataset, ShardDataset):
            raise TypeError(f"brimful.Loader reads a brimful.ShardDataset, not {type(dataset).__name__}")
        if mine := own_methods(dataset):
            raise InvalidOptionError(
                f"{type(dataset).__name__} has a {mine[0]} of its own, which the native loader would not call",
                hint="brimful.DataLoader goes through it",
            )
        choice("stages", stages, WISHES)
        self.dataset = dataset
        self.batch_size = batch_size
        self._arrays = arrays
        converter(arrays)
        device = devices.name(device)
        if device != "cpu" and arrays == "numpy":
            raise InvalidOptionError(
                f'device="{device}" and NumPy, which knows host memory only',
                hint='arrays="torch" gives tensors, arrays="dlpack" objects for CuPy, JAX and others',
            )
        options = {
            "batch_size": batch_size,
            "drop_last": drop_last,
            "shuffle": shuffle,
            "shuffle_window": shuffle_window,
            "seed": seed,
            "num_workers": num_workers,
            "prefetch": prefetch,
            "dtype": dtype,
            "layout": layout,
            "on_error": on_error,
            "max_errors": max_errors,
            "quarantine": quarantine,
            "split": ranks.resolve(split, rank, world_size, stacklevel=3),
            "remainder": remainder,
            "device": device,
            "device_batches_max": device_batches_max,
            "route": choice("decoder", decoder, ("auto", "cpu", "gpu")),
            "nvtx": nvtx,
        }
        self._stages = None if dataset.compiled.is_native else self._stages_of(options, stages)
        self._engine = Engine(dataset, options)

    def _stages_of(self, options: dict[str, Any], wish: str) -> Stages:
        """The Python stages, with the native options changed to what they are fed with."""
        unfit = {"arrays": self._arrays, "device": options["device"], "dtype": options["dtype"]}
        unfit["layout"] = options["layout"]
        fit = {"arrays": "numpy", "device": "cpu", "dtype": None, "layout": "NCHW"}
        wrong = [f"{name}={value!r}" for name, value in unfit.items() if value != fit[name]]
        if wrong:
            raise InvalidOptionError(
                f"{', '.join(wrong)} and a transform that ends in Python: {self.dataset.compiled.reason}",
                hint="brimful.DataLoader makes tensors of it, on a GPU too",
            )
        stages = Stages(
            self.dataset,
            collate_fn=None,
            num_workers=options["num_workers"],
            wish=wish,
            context=None,
            worker_init_fn=None,
            prefetch=options["prefetch"],
            seed=options["seed"],
            arrays="numpy",
            is_nested=in_worker(),
        )
        options |= {"delivery": "rows", "prefetch": 0, "layout": stages.layout, "nvtx": False, "route": "cpu"}
        return stages

    def __iter__(self) -> Iterator[Any]:
        if self._stages is None:
            return Batches(self._engine, self._finish)
        # Steps after one that makes tensors get those of torch where it is there, as in a data set.
        takes_arrays = self._stages.recipe.takes_picture or not torch_is_there()
        to_array = numpy_column if takes_arrays else torch_column
        return StagedBatches(self._engine.native, self._stages, to_array, lambda batch: batch)

    def stats(self) -> dict[str, Any]:
        stats = super().stats()
        return stats if self._stages is None else self._stages.joined(stats)

    def explain(self) -> Explanation:
        decode, read = self._engine.native.threads
        threads = f"{decode} decode threads, {read} reader threads"
        if self._stages is not None:
            return Explanation(
                "native",
                native=("read", "decode", *self.dataset.compiled.names),
                python=self._stages.names,
                reasons=(self.dataset.compiled.reason,),
                notes=(threads, *self._stages.notes(), *stream_notes(self.dataset)),
            )
        python = () if self.dataset.target_transform is None else ("target_transform",)
        return Explanation(
            "native",
            native=("read", "decode", *self.dataset.compiled.names, "batch"),
            python=python,
            reasons=("target_transform is a Python function, called for each row",) if python else (),
            notes=(threads, *stream_notes(self.dataset), *io_notes(self.dataset)),
        )

    def _finish(self, batch: _native.Batch) -> Any:
        to_array = converter(self._arrays)
        columns = [to_array(column) for column in batch.columns]
        if self.dataset.target_transform is not None:
            columns[-1] = _map_rows(self.dataset.target_transform, columns[-1])
        return self.dataset.shaped(columns)


def _map_rows(function: Any, column: Any) -> Any:
    values = column.tolist() if getattr(column, "ndim", 0) == 1 else list(column)
    mapped = [function(value) for value in values]
    is_numeric = bool(mapped) and all(isinstance(value, (bool, int, float, numpy.number)) for value in mapped)
    return numpy.asarray(mapped) if is_numeric else mapped
