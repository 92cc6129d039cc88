"""A real subclass of torch's DataLoader that runs natively where it can, and on torch's machinery where it must."""

from __future__ import annotations

import contextlib
import os
import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import torch
import torch.utils.data

from . import _native, devices, prepare, ranks
from .adaptive import Adaptive, AdaptiveBatchSampler, OomGuard, Steps
from .agreement import Agreement
from .arrays import torch_column
from .autobatch import AutoBatch, Tuning
from .dataset import ShardDataset, count, own_methods
from .device_copies import Moved, on_device
from .engine import Batches, Controls, Engine
from .errors import InvalidOptionError, choice
from .explanation import Explanation, stream_notes, transform_steps
from .samplers import Order, Planned, PlannedBatches, SeenEpoch, native_order, own_sampler, seen_epoch
from .stages import WISHES, Single, StagedBatches, Stages

__all__ = ["DataLoader"]

IN_FLIGHT = 6
"""Batches in flight under a search for the batch size, unless asked otherwise."""

T_co = TypeVar("T_co", covariant=True)


class DataLoader(Controls, torch.utils.data.DataLoader[T_co]):
    """torch's DataLoader, native over a `ShardDataset`.

    Every argument of torch's is accepted and checked as torch does. The native path serves a `ShardDataset` without
    batch_sampler; of samplers it knows torch's sequential, random and distributed ones. Everything else, and every
    other data set, goes through torch's own machinery; `explain()` says which it is, and why.

    On the native path `num_workers` are threads, 0 for all cores; `prefetch_factor` is the number of batches in flight.

    What of a transform has no native form, and a collate_fn, run in Python behind the native threads: in `num_workers`
    threads, or in as many worker processes where threads wait for the interpreter's lock, which is measured in the
    first batches, where a step draws from Python's or NumPy's global generators, or where a worker_init_fn is given.
    num_workers=0 never starts a process. For each sample the global generators start from (seed, epoch, sample), so
    that the same seed gives the same pixels wherever steps run; a generator that a step keeps for itself does not.
    Worker processes are started as `multiprocessing_context` says and live as long as the loader.

    Each `iter()` begins the next epoch; `set_epoch(e)`, or that of a `DistributedSampler`, begins epoch e, also when it
    was begun before. A sampler that is never told goes on from epoch to epoch, where torch would repeat the first.

    With `batch_size=AutoBatch(...)` the size is found while training runs: `batch_size` is the present one, `len()`
    counts batches of it and changes with it, `tuning` tells what was found; see `AutoBatch` and `oom_guard`.

    Args:
        device: None or "cpu", "cuda" (the current GPU) or "cuda:1": where batches are delivered. On a GPU they come
            from page-locked memory on a stream of their own; the current stream waits for them, the program does not.
        device_batches_max: batches that may be held on the GPU at a time, beside those in flight.
        nvtx: on a GPU, show the stages as named ranges in NVIDIA's profilers.
        dtype: "float32", "float16", "bfloat16" or "uint8" images; None for what the transform makes.
        layout: "NCHW", "channels_last" or "NHWC".
        seed: what order and augmentation derive from, with epoch and sample; else the seed of `generator`, else 0. On
            torch's path it governs, with the epoch, what `generator` would: the order of a shuffle and what workers
            draw.
        on_error: a bad sample is an error ("raise"), left out ("skip"), or replaced by another ("replace"). Under
            "skip" its batch is shorter by a row, also with drop_last, and a batch without rows is left out: take
            "replace" where every batch must have the same shape.
        max_errors: bad samples allowed an epoch, as a count (int) or a share (float).
        quarantine: a file that gets a JSON line for each bad sample.
        split: "rank" shares the samples out among the ranks of a distributed job; an error on torch's path, where a
            `DistributedSampler` does that.
        rank, world_size: this process's share, where it cannot be found.
        remainder: how ranks get equal counts: "pad" repeats the first samples, "drop" leaves the last ones out.
        decoder: who decodes JPEG files. "auto": threads, and on a GPU its JPEG engines for what the threads cannot keep
            up with; "gpu": the engines for all that they take; "cpu": threads alone; or a library, as in
            `ShardDataset`.
        io: as in `ShardDataset`, where it says something else than "auto".
        shuffle_window: shuffle shards, and samples among that many shards, so that reads stay close.
        stages: where Python steps run: "auto", "threads" or "processes".
        snapshot_every_n_steps: taken for the sake of programs that use torchdata's `StatefulDataLoader`; `state_dict`
            is exact at every step, whatever it says.
    """

    def __init__(
        self,
        dataset: torch.utils.data.Dataset[T_co] | ShardDataset,
        batch_size: int | AutoBatch | None = 1,
        shuffle: bool | None = None,
        sampler: torch.utils.data.Sampler | Iterable | None = None,
        batch_sampler: torch.utils.data.Sampler | Iterable | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        layout: str = "NCHW",
        seed: int | None = None,
        on_error: str = "raise",
        max_errors: float | None = None,
        quarantine: str | os.PathLike | None = None,
        split: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: str = "pad",
        decoder: str = "auto",
        io: str = "auto",
        shuffle_window: int | None = None,
        device_batches_max: int = 16,
        nvtx: bool = False,
        stages: str = "auto",
        snapshot_every_n_steps: int | None = 1,
    ) -> None:
        self._tuning: Tuning | None = None
        self._steps: Steps | None = None
        self._adaptive: Adaptive | None = None
        asked = batch_size if isinstance(batch_size, AutoBatch) else None
        batch_size = batch_size if asked is None else asked.min
        self._device = devices.name(device)
        given = dataset
        if isinstance(dataset, ShardDataset):
            # "cpu" and "gpu" say who decodes, the other words which library does on the threads.
            backend = "auto" if decoder in ("cpu", "gpu") else decoder
            changes = {name: word for name, word in (("decoder", backend), ("io", io)) if word != "auto"}
            # Frameworks that make a loader anew give the data set it had; a sampler over it must know it again.
            changes = {name: word for name, word in changes.items() if dataset.option(name) != word}
            dataset = dataset.with_options(**changes) if changes else dataset
        # The length of a stream is unknown, which torch's random sampler does not survive; ours shuffles anyway.
        is_stream = isinstance(dataset, ShardDataset) and dataset.is_stream
        # Its own, so that a seed governs torch's machinery as well: seeded anew for each epoch.
        seeded = None if seed is None or generator is not None else torch.Generator()
        super().__init__(
            dataset,
            batch_size,
            None if is_stream else shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator if seeded is None else seeded,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            **({"pin_memory_device": pin_memory_device} if pin_memory_device else {}),
            **({} if in_order else {"in_order": in_order}),
        )
        self.device = device
        self.dtype = dtype
        self.layout = layout
        self.seed = seed
        self.on_error = on_error
        self.max_errors = max_errors
        self.quarantine = quarantine
        self.split = split
        self.rank = rank
        self.world_size = world_size
        self.remainder = remainder
        self.decoder = decoder
        self.io = io
        self.shuffle_window = shuffle_window
        self.device_batches_max = device_batches_max
        self.nvtx = nvtx
        self.stages = choice("stages", stages, WISHES)
        self.snapshot_every_n_steps = snapshot_every_n_steps
        order = Order(bool(shuffle)) if sampler is None else native_order(sampler, (dataset, given))
        self._sampler_epoch: SeenEpoch | None = None
        self._engine: Engine | None = None
        self._preparation: prepare.Preparation | None = None
        self._stages: Stages | None = None
        self._reasons = _reasons_for_torch(dataset, order, batch_sampler)
        self._torch_epoch = 0 if seeded is not None else None
        if order is None or self._reasons:
            super().check_worker_number_rationality()
            has_sampler = sampler is not None or batch_sampler is not None
            if not has_sampler:
                self._refuse_split()
            self._warn_of_idle_options(has_sampler, seed is not None and seeded is None)
            self._search_with(asked)
            return
        self._torch_epoch = None
        self.generator = generator
        if seeded is not None and getattr(self.sampler, "generator", None) is seeded:
            self.sampler.generator = None
        seed = order.seed if seed is None else seed
        if sampler is None:
            order = replace(order, split=ranks.resolve(split, rank, world_size, stacklevel=3), remainder=remainder)
        elif (split, rank, world_size) != (None, None, None) and order.split != ranks.resolve(
            split, rank, world_size, stacklevel=3
        ):
            warnings.warn(
                "split, rank and world_size without effect: the sampler gives this process share "
                f"{order.split.rank} of {order.split.world_size}; give one or the other",
                stacklevel=2,
            )
        options = {
            "batch_size": 1 if batch_size is None else batch_size,
            "drop_last": drop_last,
            "shuffle": order.shuffle,
            "shuffle_window": shuffle_window,
            "seed": _seed(seed, generator),
            "num_workers": num_workers,
            "prefetch": 0 if isinstance(prefetch_factor, _Unasked) else prefetch_factor or 0,
            "dtype": dtype,
            "layout": layout,
            "on_error": on_error,
            "max_errors": max_errors,
            "quarantine": quarantine,
            "split": order.split,
            "remainder": order.remainder,
            "device": self._device,
            "device_batches_max": device_batches_max,
            "route": decoder if decoder in ("auto", "gpu") else "cpu",
            "nvtx": nvtx,
        }
        if _is_staged(dataset, batch_size, collate_fn):
            self._stages = self._stages_of(dataset, options)
        if asked is not None:
            # The same on all ranks, whatever processors they have: a change comes so many batches later.
            in_flight = IN_FLIGHT if options["prefetch"] == 0 else options["prefetch"]
            options |= {"batch_size_max": asked.max, "prefetch": in_flight}
            # Of a global batch whole steps are dropped, not whole batches: `Adaptive` counts them.
            options["drop_last"] = drop_last and asked.global_batch is None
        self._engine = Engine(dataset, options)
        if prefetch_factor is None and self.prefetch_factor is not None:
            self.prefetch_factor = _Unasked(self.prefetch_factor)
        if sampler is None and not is_stream:
            self._list_by(own_sampler(dataset, order, self.generator), torch.utils.data.BatchSampler)
            object.__setattr__(self, "sampler", self.batch_sampler.sampler)
        self._follow_sampler()
        self._search_with(asked)

    def _search_with(self, asked: AutoBatch | None) -> None:
        """Begins the search for a batch size, if one was asked for."""
        if asked is None:
            return
        if self._engine is not None:
            samples, lag = self._engine.native.samples, self._engine.native.prefetch
            if self._stages is not None:
                # Workers take batches ahead as they get on, not at fixed steps.
                lag += 2 * max(1, self.num_workers)
                if Agreement().world_size > 1:
                    raise InvalidOptionError(
                        "AutoBatch changes batches on all ranks at the same step, and Python stages take them ahead at "
                        f"no fixed one: {', '.join(self._stages.names)}",
                        hint="use transforms that compile and no collate_fn, or a batch_size that is a number",
                    )
        else:
            # What workers have been given ahead, and what is copied ahead.
            lag = self.num_workers * (self.prefetch_factor or 0) + (0 if self._device == "cpu" else 2)
            samples = None if isinstance(self.dataset, torch.utils.data.IterableDataset) else len(self.sampler)
            drop_last = self.drop_last and asked.global_batch is None
            object.__setattr__(self, "batch_sampler", AdaptiveBatchSampler(self.sampler, drop_last))
        self._tuning = Tuning(asked, self._device, samples, lag + (asked.global_batch is not None))
        self._steps = Steps(self._tuning.per_rank)
        self._tuning.follow = self._ask_for_size
        self._ask_for_size(self._tuning.batch_size)

    def _ask_for_size(self, size: int) -> None:
        if self._engine is not None:
            self._engine.native.set_batch_size(size)
        else:
            self.batch_sampler.batch_size = size

    def _under_search(self, batches: Iterator[Any]) -> Iterator[Any]:
        if self._tuning is None:
            return batches
        samples = None
        if self._engine is not None and self._engine.native.samples is not None:
            samples = self._engine.native.samples - self._engine.native.state()["position"]
        elif self._engine is None and not isinstance(self.dataset, torch.utils.data.IterableDataset):
            samples = len(self.sampler)
        self._adaptive = Adaptive(self, batches, self._tuning, self._steps, samples, self.drop_last)
        return self._adaptive

    @property
    def batch_size(self) -> int | None:
        """Rows of a batch; under `AutoBatch` those of the present one."""
        return self.__dict__["batch_size"] if self.__dict__.get("_tuning") is None else self._tuning.batch_size

    @batch_size.setter
    def batch_size(self, size: int | None) -> None:
        self.__dict__["batch_size"] = size

    @property
    def accumulation_steps(self) -> int:
        """Micro-batches of one optimiser step under `AutoBatch(global_batch=...)`, else 1."""
        return 1 if self._tuning is None else self._tuning.accumulation_steps

    @property
    def is_last_micro_batch(self) -> bool:
        """Whether the optimiser should step after the present batch."""
        return self._steps is None or self._steps.is_last

    @property
    def micro_batch_share(self) -> float:
        """The present batch's share of its optimiser step: what its mean loss is to be multiplied with.

        That is 1 / `accumulation_steps`, but for the batches after a change, which may be cut to complete a step.
        """
        return 1.0 if self._steps is None else self._steps.share

    @property
    def tuning(self) -> dict[str, Any] | None:
        """What the search for a batch size has found: sizes, rates, changes with their reasons; None without one."""
        return None if self._tuning is None else self._tuning.summary()

    def oom_guard(self, optimizer: torch.optim.Optimizer | None = None, agree: bool = False) -> Any:
        """A context for a training step that may run out of memory under `AutoBatch`; see `OomGuard`."""
        if self._tuning is None:
            return contextlib.nullcontext()
        return OomGuard(self._adaptive, self._tuning, optimizer, agree)

    def state_dict(self) -> dict[str, Any]:
        """As `Loader.state_dict`, and under `AutoBatch` what the search has found."""
        state = super().state_dict()
        return state if self._tuning is None else {**state, "autobatch": self._tuning.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As `Loader.load_state_dict`; a search goes on where it was, if the state has one and so has this loader."""
        place = dict(state_dict)
        search = place.pop("autobatch", None)
        super().load_state_dict(place)
        if search is not None and self._tuning is not None:
            self._tuning.load_state(search)

    def __iter__(self) -> Iterator[Any]:
        if self._engine is None:
            if self._torch_epoch is not None:
                self.generator.manual_seed(random.Random(f"{self.seed} {self._torch_epoch}").getrandbits(63))
                self._torch_epoch += 1
            batches = super().__iter__()
            return self._under_search(batches if self._device == "cpu" else on_device(batches, self._device))
        self._follow_sampler()
        self._engine.behind = None
        batches = self._under_search(self._batches())
        return batches if self._preparation is None else prepare.Announced(self, batches)

    def _batches(self) -> Iterator[Any]:
        timeout_s = self.timeout or None
        if self._stages is None:
            return Batches(self._engine, self._finish, timeout_s, self._wants_other)
        in_order = getattr(self, "in_order", True)
        native = self._engine.native
        batches = StagedBatches(
            native, self._stages, torch_column, self._finish_staged, timeout_s, self._wants_other, in_order
        )
        return batches if self._device == "cpu" else Moved(batches, self._device)

    def _stages_of(self, dataset: ShardDataset, options: dict[str, Any]) -> Stages:
        """The Python stages, with the native options changed to what they are fed with."""
        factor = options["prefetch"]
        collate_fn = None if self.collate_fn is torch.utils.data.default_collate else self.collate_fn
        stages = Stages(
            dataset,
            collate_fn=Single(self.collate_fn) if self.batch_size is None else collate_fn,
            num_workers=self.num_workers,
            wish=self.stages,
            context=self.multiprocessing_context,
            worker_init_fn=self.worker_init_fn,
            prefetch=factor * self.num_workers,
            seed=options["seed"],
            arrays="torch",
            is_nested=torch.utils.data.get_worker_info() is not None,
        )
        if options["route"] == "gpu":
            raise InvalidOptionError(
                f'decoder="gpu" leaves pixels on the GPU, and {", ".join(stages.names)} run in Python on the host',
                hint='decoder="auto" or "cpu" goes with them',
            )
        options |= {"delivery": "rows", "device": "cpu", "nvtx": False, "prefetch": 0}
        if stages.layout is not None:
            idle = [name for name, value in (("dtype", None), ("layout", "NCHW")) if options[name] != value]
            if idle:
                warnings.warn(
                    f"{', '.join(idle)} without effect: the transform ends in Python, because "
                    f"{dataset.compiled.reason}",
                    stacklevel=4,
                )
            options |= {"dtype": None, "layout": stages.layout}
        return stages

    def _wants_other(self, begun: int) -> bool:
        """Whether the sampler was told an epoch between `iter()` and the first batch, as Lightning does."""
        epoch = seen_epoch(self.sampler)
        if epoch is self._sampler_epoch:
            return False
        self._sampler_epoch = epoch
        if epoch == begun:
            return False
        self._engine.native.set_epoch(epoch)
        return True

    def _list_by(self, sampler: Any, batches: type[torch.utils.data.BatchSampler]) -> None:
        """Shows the native order as samplers of torch's kinds: to frameworks, and to loaders they make from it."""
        sampler.order = self._engine.order
        batch_sampler = batches(sampler, self._engine.options["batch_size"], self.drop_last)
        # torch lets nobody change it once a loader is made.
        object.__setattr__(self, "batch_sampler", batch_sampler)

    def _follow_sampler(self) -> None:
        """Sets the epoch that a sampler was told since the last look; one that is never told goes on by itself."""
        epoch = seen_epoch(self.sampler)
        if epoch is not self._sampler_epoch:
            self._sampler_epoch = epoch
            self._engine.native.set_epoch(epoch)

    def __len__(self) -> int:
        if self._engine is None:
            return torch.utils.data.DataLoader.__len__(self)
        return Controls.__len__(self)

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the one that the next `iter()` begins; on torch's path the sampler is told, if it listens."""
        if self._engine is not None:
            super().set_epoch(epoch)
            # What a sampler was told before is overruled; what it is told from now on is not.
            if isinstance(self.sampler, Planned):
                self.sampler.set_epoch(epoch)
            self._sampler_epoch = seen_epoch(self.sampler)
            return None
        if self._torch_epoch is not None:
            self._torch_epoch = count("epoch", epoch)
        for listener in (self.sampler, self.batch_sampler, getattr(self.batch_sampler, "sampler", None)):
            if hasattr(listener, "set_epoch"):
                listener.set_epoch(epoch)
                return None
        if self._torch_epoch is None:
            warnings.warn(
                "set_epoch without effect: torch's machinery runs this loader, and neither a seed nor a sampler that "
                f"knows epochs is given; seed=0 makes each epoch repeatable. It is torch's because {self._reasons[0]}",
                stacklevel=2,
            )
        return None

    @property
    def _is_accelerate_prepared(self) -> bool:
        if self._engine is None or self._preparation is not None:
            return self._engine is not None
        asked = prepare.asked_by_accelerate(depth=2)
        if isinstance(asked, str):
            prepare.warn_of_rebuild(asked, stacklevel=5)
        if not isinstance(asked, prepare.Preparation):
            return False
        self._prepare(asked)
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        """accelerate notes on everything that it prepared that it did."""

    def _prepare(self, asked: prepare.Preparation) -> None:
        """Takes over what accelerate would do around a loader of torch's."""
        options = dict(self._engine.options)
        is_settled = (self.split, self.rank, self.world_size) != (None, None, None)
        options["split"] = prepare.share_of(asked, options["split"], is_settled)
        if asked.splits_batches:
            options["batch_size"] = prepare.part_of_batch(options["batch_size"], asked.split)
        if options["split"].world_size > 1:
            # Gathered rank by rank, batches are then in the order of the epoch, and what was padded comes last.
            options["turn"] = options["batch_size"]
        if self.seed is None and self.generator is None and asked.seed is not None:
            options["seed"] = asked.seed
        if self.device is None and asked.device is not None and asked.device.type == "cuda":
            self._device = devices.name(asked.device)
            if self._stages is None:
                options["device"] = self._device
        epoch, is_new_order = self._engine.state()["epoch"], options != self._engine.options
        if is_new_order:
            self._engine = Engine(self.dataset, options)
            if self._tuning is not None:
                self._ask_for_size(self._tuning.wanted)
            self._engine.native.set_epoch(epoch)
        if not self.dataset.is_stream:
            order = Order(options["shuffle"], options["seed"], options["split"], options["remainder"])
            is_own = isinstance(self.sampler, Planned)
            self._list_by(own_sampler(self.dataset, order, self.generator), PlannedBatches)
            if is_own:
                object.__setattr__(self, "sampler", self.batch_sampler.sampler)
        self._preparation = asked
        self.use_stateful_dataloader = asked.saves_state

    def _rows_over(self) -> int:
        """Rows in the last batch of all ranks together that is not full, as accelerate counts them; -1 if unknown."""
        if self.dataset.is_stream or self.drop_last:
            return -1
        left = len(self.dataset) - self._engine.state()["consumed"]
        return left % self.total_batch_size

    @property
    def total_batch_size(self) -> int:
        """Rows of a batch of all ranks together."""
        return self._engine.options["batch_size"] * self._engine.options["split"].world_size

    @property
    def total_dataset_length(self) -> int:
        """Samples of all ranks together."""
        return len(self.dataset)

    def check_worker_number_rationality(self) -> None:
        """Does nothing: threads are not the processes that torch warns of. On torch's path it is asked for by name."""

    def stats(self) -> dict[str, Any]:
        """What each stage did, and which one is the bottleneck; on torch's path only why nothing is known."""
        if self._engine is None:
            return {"engine": "torch", "reasons": list(self._reasons)}
        stats = super().stats()
        return stats if self._stages is None else self._stages.joined(stats)

    def explain(self) -> Explanation:
        """What runs natively, what in Python, and why."""
        if not isinstance(self.dataset, ShardDataset):
            return Explanation("torch", python=("dataset", "collate_fn"), reasons=tuple(self._reasons))
        target = ("target_transform",) if self.dataset.target_transform is not None else ()
        native, python = transform_steps(self.dataset.compiled.names, self.dataset.compiled.python)
        if self._engine is None:
            place = "the main process" if self.num_workers == 0 else f"{self.num_workers} worker processes"
            return Explanation(
                "torch",
                native=("read", "decode", *native),
                python=(*python, *target, "collate_fn"),
                reasons=tuple(self._reasons),
                notes=(f"samples are made one by one in {place}",),
            )
        decode, read = self._engine.native.threads
        threads = f"{decode} decode threads, {read} reader threads, seed {self._engine.options['seed']}"
        if self._stages is not None:
            reason = self.dataset.compiled.reason
            return Explanation(
                "native",
                native=("read", "decode", *native),
                python=self._stages.names,
                reasons=(reason,) if reason is not None else (),
                notes=(threads, *self._stages.notes(), *stream_notes(self.dataset)),
            )
        return Explanation(
            "native",
            native=("read", "decode", *native, "batch"),
            python=target,
            reasons=("target_transform is a Python function, called for each row",) if target else (),
            notes=(threads, *self._idle_notes(), *stream_notes(self.dataset)),
        )

    def _idle_notes(self) -> tuple[str, ...]:
        if self.worker_init_fn is None:
            return ()
        return ("worker_init_fn is not called: nothing of this loader runs in Python workers",)

    def _finish_staged(self, batch: Any) -> Any:
        if self.pin_memory and self._device == "cpu" and getattr(torch, "accelerator", torch.cuda).is_available():
            return torch.utils.data._utils.pin_memory.pin_memory(batch)
        return batch

    def _finish(self, batch: _native.Batch) -> Any:
        columns = [torch_column(column) for column in batch.columns]
        target_transform = self.dataset.target_transform
        if target_transform is not None:
            last = columns[-1]
            values = last.tolist() if torch.is_tensor(last) and last.ndim == 1 else list(last)
            columns[-1] = torch.utils.data.default_collate([target_transform(value) for value in values])
        if self.pin_memory and self._device == "cpu" and getattr(torch, "accelerator", torch.cuda).is_available():
            columns = [column.pin_memory() if torch.is_tensor(column) else column for column in columns]
        return self.dataset.shaped(columns, list)

    def _refuse_split(self) -> None:
        """Torch's machinery would give every rank all samples."""
        if (self.split, self.rank, self.world_size) == (None, None, None):
            return
        if ranks.resolve(self.split, self.rank, self.world_size, stacklevel=4).world_size > 1:
            raise InvalidOptionError(
                f"samples cannot be shared out among ranks: torch's machinery runs this loader, because "
                f"{self._reasons[0]}",
                hint="give sampler=torch.utils.data.DistributedSampler(dataset)",
            )

    def _warn_of_idle_options(self, has_sampler: bool, has_idle_seed: bool) -> None:
        defaults = {"dtype": None, "layout": "NCHW", "on_error": "raise", "max_errors": None, "quarantine": None}
        defaults |= {"shuffle_window": None, "remainder": "pad", "device_batches_max": 16, "nvtx": False}
        if not isinstance(self.dataset, ShardDataset):
            defaults |= {"decoder": "auto", "io": "auto"}
        elif self.decoder in ("cpu", "gpu"):
            defaults["decoder"] = "auto"
        if has_idle_seed:
            defaults["seed"] = None
        idle = [name for name, default in defaults.items() if getattr(self, name) != default]
        if idle:
            warnings.warn(
                f"{', '.join(idle)} without effect: torch's machinery runs this loader, because {self._reasons[0]}",
                stacklevel=3,
            )


def _reasons_for_torch(dataset: Any, order: Order | None, batch_sampler: Any) -> list[str]:
    """Why the native path cannot serve this loader; empty where it can."""
    if not isinstance(dataset, ShardDataset):
        return [f"{type(dataset).__name__} is no brimful.ShardDataset"]
    reasons = [f"{type(dataset).__name__} has a {name} of its own" for name in own_methods(dataset)]
    given = {
        "sampler": None if order is not None else "of another kind",
        "batch_sampler": batch_sampler,
    }
    reasons += [f"{name} is given" for name, value in given.items() if value is not None]
    if reasons and dataset.is_stream:
        raise InvalidOptionError(
            f"a stream of shards is only served natively, and {reasons[0]}",
            hint='access="indexed" gives random access to compressed shards',
        )
    return reasons


def _is_staged(dataset: ShardDataset, batch_size: int | None, collate_fn: Any) -> bool:
    """Whether something of the loader runs in Python, sample by sample."""
    is_default = collate_fn is None or collate_fn is torch.utils.data.default_collate
    return batch_size is None or not is_default or not dataset.compiled.is_native


class _Unasked(int):
    """The prefetch factor that torch fills in where none is asked for; whoever makes a loader anew passes it on."""


def _seed(seed: int | None, generator: torch.Generator | None) -> int:
    if seed is not None:
        return seed
    return 0 if generator is None else generator.initial_seed()
