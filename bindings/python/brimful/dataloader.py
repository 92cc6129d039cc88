"""A real subclass of torch's DataLoader that runs natively where it can, and on torch's machinery where it must."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import torch
import torch.utils.data

from . import _native, devices, prepare, ranks
from .arrays import torch_column
from .autobatch import AutoBatch
from .dataset import ShardDataset
from .device_copies import Moved
from .driven import Batching, BegunLoader, Driven, Driver, batching_of, has_known_rows
from .engine import Batches, Controls, Engine
from .errors import InvalidOptionError, choice
from .explanation import Explanation, explain_loader
from .finishing import Finishing
from .following import Drawn, Following
from .renewing import Contents, Renewing
from .samplers import (
    Order,
    Planned,
    SeenEpoch,
    is_planned,
    is_shuffled_share,
    native_order,
    own_sampler,
    seen_epoch,
)
from .searching import IN_FLIGHT, Searching
from .sources import Source, Unknown, native_source, with_words
from .stages import WISHES, Single, StagedBatches, Stages

__all__ = ["DataLoader"]

# Kept by this name: a program may put brimful's class in the place of torch's.
TorchLoader = torch.utils.data.DataLoader

T_co = TypeVar("T_co", covariant=True)


class DataLoader(Searching, Following, Renewing, Finishing, prepare.Preparing, TorchLoader[T_co]):
    """torch's DataLoader, native over a `ShardDataset`.

    Every argument of torch's is accepted and checked as torch does. The native path serves data sets that brimful
    knows: a `ShardDataset`, torchvision's `ImageFolder` and `DatasetFolder`, and torch's `Subset` and `ConcatDataset`
    of these. Every other data set goes through torch's own machinery; `explain()` says which it is, and why.

    On the native path `num_workers` are threads, 0 for all cores (but one, where batches go to a GPU), and
    `prefetch_factor` is the number of batches in flight. Samplers and batch samplers are followed number by number.
    `shuffle=True` without one is the native shuffle, another than torch's.

    What of a transform has no native form, and a collate_fn, run in Python behind the native threads: in `num_workers`
    threads, or in as many worker processes where threads wait for the interpreter's lock, which is measured in the
    first batches, where a step draws from Python's or NumPy's global generators, or where a worker_init_fn is given.
    num_workers=0 never starts a process. For each sample the global generators start from (seed, epoch, sample), so
    that the same seed gives the same pixels wherever steps run; a generator that a step keeps for itself does not.
    Worker processes are started as `multiprocessing_context` says and live as long as the loader. A `worker_init_fn` is
    called in them, and not called where nothing runs in Python.

    Each `iter()` begins the next epoch; `set_epoch(e)`, or that of a `DistributedSampler`, begins epoch e, also when it
    was begun before. A `DistributedSampler` that is never told goes on from epoch to epoch, where torch would repeat
    the first.

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
        shuffle_window: shuffle shards, and samples among that many shards, so that reads stay close. Under a
            `DistributedSampler` that shuffles it is the native order that is shared out, not the sampler's.
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
        asked = batch_size if isinstance(batch_size, AutoBatch) else None
        batch_size = batch_size if asked is None else asked.min
        self._device = devices.name(device)
        given, unknown = dataset, None
        # "cpu" and "gpu" say who decodes, the other words which library does on the threads.
        words = ("auto" if decoder in ("cpu", "gpu") else decoder, io)
        try:
            self._source: Source | None = native_source(dataset, *words)
        except Unknown as error:
            self._source, unknown = None, str(error)
        if isinstance(dataset, ShardDataset):
            dataset = with_words(dataset, *words) if self._source is None else self._source
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
        self._datasets = (dataset, given)
        order = None
        if sampler is None and batch_sampler is None:
            order = Order(bool(shuffle))
        elif is_planned(sampler) or (shuffle_window is not None and is_shuffled_share(sampler)):
            order = native_order(sampler, self._datasets)
        self._batching: Batching | None = None
        # What the order of an epoch was drawn from: of the one that is under way, and of one that is to be taken up.
        self._drawn: Drawn | None = None
        self._resumed: Drawn | None = None
        self._driver: Driver | None = None
        self._sampler_epoch: SeenEpoch | None = None
        self._engine: Engine | None = None
        self._preparation: prepare.Preparation | None = None
        self._stages: Stages | None = None
        self._reasons = self._reasons_for_torch(unknown)
        self._torch_epoch = 0 if seeded is not None else None
        if self._reasons:
            super().check_worker_number_rationality()
            has_sampler = sampler is not None or batch_sampler is not None
            if not has_sampler:
                self._refuse_split()
            self._warn_of_idle_options(has_sampler, seed is not None and seeded is None)
            self._search_with(asked)
            return
        self._torch_epoch = None
        self._contents = Contents(given)
        self.generator = generator
        if seeded is not None and getattr(self.sampler, "generator", None) is seeded:
            self.sampler.generator = None
        if order is None:
            self._batching = batching_of(sampler, batch_sampler, batch_size, drop_last, generator)
            order = self._order_of_sampler()
            if shuffle_window is not None:
                warnings.warn("shuffle_window without effect: the sampler gives the order", stacklevel=2)
        seed = order.seed if seed is None else seed
        if sampler is None and batch_sampler is None:
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
            "batch_size": (batch_size or 1) if self._batching is None else self._batching.batch_size,
            "drop_last": drop_last and self._batching is None,
            "order": "planned" if self._batching is None else "given",
            "in_order": in_order or num_workers == 0,
            "shuffle": order.shuffle and self._batching is None,
            "shuffle_window": shuffle_window if self._batching is None else None,
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
        if self._has_open_batches():
            if options["route"] == "gpu" and self._device != "cpu":
                raise InvalidOptionError(
                    'decoder="gpu" needs batches whose size is known before, and a batch sampler may make any',
                    hint='give a torch.utils.data.BatchSampler, or decoder="auto"',
                )
            options |= {"device": "cpu", "nvtx": False}
        if self._is_staged():
            self._stages = self._stages_of(options)
        if asked is not None:
            # The same on all ranks, whatever processors they have: a change comes so many batches later.
            in_flight = IN_FLIGHT if options["prefetch"] == 0 else options["prefetch"]
            options |= {"batch_size_max": asked.max, "prefetch": in_flight}
            # Of a global batch whole steps are dropped, not whole batches: `Adaptive` counts them.
            options["drop_last"] = drop_last and asked.global_batch is None and self._batching is None
            if self._batching is not None:
                self._batching.drop_last = drop_last and asked.global_batch is None
        self._engine = Engine(self._source, options)
        if prefetch_factor is None and self.prefetch_factor is not None:
            self.prefetch_factor = _Unasked(self.prefetch_factor)
        if sampler is None and batch_sampler is None and not is_stream:
            self._list_by(own_sampler(dataset, order, self.generator), torch.utils.data.BatchSampler)
        self._follow_sampler()
        self._search_with(asked)

    def _order_of_sampler(self) -> Order:
        """What is known of the order that a sampler gives: by whom it is shared, and its seed."""
        order = native_order(self._batching.sampler, self._datasets)
        if order is None or not self._batching.is_distributed:
            return Order(shuffle=False)
        return order

    def _has_open_batches(self) -> bool:
        """Whether batches may be of any size; the slots that the engine has on a GPU are made for one."""
        batch_sampler = None if self._batching is None else self._batching.batch_sampler
        return batch_sampler is not None and not has_known_rows(batch_sampler)

    def _is_copied_by_torch(self) -> bool:
        """Whether it is torch that copies batches to the GPU."""
        return self._device != "cpu" and (self._engine is None or self._engine.options["device"] == "cpu")

    def _is_staged(self) -> bool:
        """Whether something of the loader runs in Python, sample by sample."""
        data = torch.utils.data
        is_default = self.collate_fn is (data.default_collate if self._auto_collation else data.default_convert)
        return not is_default or not self._source.compiled.is_native

    def _stages_of(self, options: dict[str, Any]) -> Stages:
        """The Python stages, with the native options changed to what they are fed with."""
        factor = options["prefetch"]
        collate_fn = None if self.collate_fn is torch.utils.data.default_collate else self.collate_fn
        stages = Stages(
            self._source,
            collate_fn=collate_fn if self._auto_collation else Single(self.collate_fn),
            num_workers=self.num_workers,
            wish=self.stages,
            context=self.multiprocessing_context,
            worker_init_fn=self.worker_init_fn,
            prefetch=factor * self.num_workers,
            seed=options["seed"],
            arrays="torch",
            is_nested=torch.utils.data.get_worker_info() is not None,
            shown=self.dataset,
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
                    f"{self._source.compiled.reason}",
                    stacklevel=4,
                )
            options |= {"dtype": None, "layout": stages.layout}
        return stages

    def __iter__(self) -> Iterator[Any]:
        if self._engine is None:
            return self._under_search(self._batches_of_torch())
        self._renew()
        self._check_iteration()
        self._draw_as_torch()
        self._follow_sampler()
        self._engine.behind = None
        if self._batching is None:
            batches = self._batches(self._wants_other)
        else:
            batches = Driven(self._begin_driven, lambda: TorchLoader.__len__(self))
        if self._is_copied_by_torch():
            batches = Moved(batches, self._device, self._engine)
        batches = self._under_search(batches)
        batches = batches if self._preparation is None else prepare.Announced(self, batches)
        if self.persistent_workers:
            self._iterator = batches
        return batches

    def _batches(
        self, is_other: Callable[[int], bool] | None, epoch: _native.Epoch | None = None
    ) -> Batches | StagedBatches:
        """What the engine, and Python behind it, make of an epoch; of the one given, if it was begun already."""
        timeout_s = self.timeout or None
        if self._stages is None:
            stacklevel = 2 if epoch is None else 3
            return Batches(self._engine, self._finish, timeout_s, is_other, epoch, stacklevel)
        native = self._engine.native if epoch is None else BegunLoader(self._engine.native, epoch)
        in_order = self._engine.options["in_order"]
        return StagedBatches(native, self._stages, torch_column, self._finish_staged, timeout_s, is_other, in_order)

    def _check_iteration(self) -> None:
        """What torch finds out when an iteration begins."""
        if self.timeout and self.num_workers == 0:
            raise AssertionError(
                f"timeout={self.timeout} waits for workers, and num_workers is 0; give num_workers=1 or more with it"
            )
        if not self.pin_memory:
            return
        if self.pin_memory_device:
            warnings.warn(
                f"pin_memory_device={self.pin_memory_device!r} is deprecated and without effect: the current "
                'accelerator is used; device="cuda" delivers batches there',
                stacklevel=3,
            )
        if not devices.can_pin():
            warnings.warn(
                "pin_memory=True without effect: there is no accelerator to pin memory for", UserWarning, stacklevel=3
            )

    def _draw_as_torch(self) -> None:
        """Draws what torch would for an iteration, so that whatever the program draws after it is the same."""
        if self.seed is not None and self.generator is None:
            # On torch's path too, the program's generators are left alone then.
            return
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        if self._batching is not None or not isinstance(self.sampler, torch.utils.data.RandomSampler):
            return
        if self.generator is None:
            torch.empty((), dtype=torch.int64).random_()
        elif not self._source.is_stream:
            # The second one is drawn when the first is used up.
            for _ in range(2):
                torch.randperm(self._source.native.samples, generator=self.generator)

    def _wants_other(self, begun: int) -> bool:
        """Whether the sampler was told an epoch between `iter()` and the first batch, as Lightning does."""
        epoch = seen_epoch(self._listener)
        if epoch is self._sampler_epoch:
            return False
        self._sampler_epoch = epoch
        if epoch == begun:
            return False
        self._engine.native.set_epoch(epoch)
        return True

    def _list_by(self, sampler: Any, batches: type[torch.utils.data.BatchSampler], is_own: bool = True) -> None:
        """Shows the native order as samplers of torch's kinds: to frameworks, and to loaders they make from it."""
        sampler.order = self._engine.order
        # torch lets nobody change them once a loader is made.
        if is_own:
            if isinstance(self.sampler, Planned):
                # What the one before was told, and whether that was seen.
                sampler.epoch = self.sampler.epoch
            object.__setattr__(self, "sampler", sampler)
        if self.batch_size is not None:
            batch_sampler = batches(sampler, self._engine.options["batch_size"], self.drop_last)
            object.__setattr__(self, "batch_sampler", batch_sampler)

    def _follow_sampler(self) -> None:
        """Sets the epoch that a sampler was told since the last look; one that is never told goes on by itself."""
        epoch = seen_epoch(self._listener)
        if epoch is not self._sampler_epoch:
            self._sampler_epoch = epoch
            self._engine.native.set_epoch(epoch)

    def __len__(self) -> int:
        if self._engine is None or self._batching is not None:
            return TorchLoader.__len__(self)
        self._renew()
        return Controls.__len__(self)

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the one that the next `iter()` begins; on torch's path the sampler is told, if it listens."""
        if self._engine is not None:
            super().set_epoch(epoch)
            listener = self._listener
            # What a sampler was told before is overruled; what it is told from now on is not.
            is_told = self._batching is not None or isinstance(listener, Planned)
            if is_told and hasattr(listener, "set_epoch"):
                listener.set_epoch(epoch)
            self._sampler_epoch = seen_epoch(listener)
            return None
        if not self._tell_torch(epoch):
            warnings.warn(
                "set_epoch without effect: torch's machinery runs this loader, and neither a seed nor a sampler that "
                f"knows epochs is given; seed=0 makes each epoch repeatable. It is torch's because {self._reasons[0]}",
                stacklevel=2,
            )
        return None

    def check_worker_number_rationality(self) -> None:
        """Does nothing: threads are not the processes that torch warns of. On torch's path it is asked for by name."""

    def stats(self) -> dict[str, Any]:
        """What each stage did, and which one is the bottleneck; on torch's path only why nothing is known."""
        if self._engine is None:
            return {"engine": "torch", "reasons": list(self._reasons)}
        stats = super().stats()
        return stats if self._stages is None else self._stages.joined(stats)

    def explain(self) -> Explanation:
        """What runs natively, what in Python, and why: printed, a table of stages."""
        return explain_loader(self)

    def _reasons_for_torch(self, unknown: str | None) -> list[str]:
        """Why the native path cannot serve this loader; empty where it can."""
        reasons = [] if unknown is None else [unknown]
        is_stream = isinstance(self.dataset, ShardDataset) and self.dataset.is_stream
        if is_stream and type(self.sampler) is not torch.utils.data.SequentialSampler:
            reasons.append("sampler is given")
        if is_stream and self.batch_size is None and self._auto_collation:
            reasons.append("batch_sampler is given")
        if reasons and is_stream:
            raise InvalidOptionError(
                f"a stream of shards is only served natively, and {reasons[0]}",
                hint='access="indexed" gives random access to compressed shards',
            )
        return reasons

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


class _Unasked(int):
    """The prefetch factor that torch fills in where none is asked for; whoever makes a loader anew passes it on."""


def _seed(seed: int | None, generator: torch.Generator | None) -> int:
    if seed is not None:
        return seed
    return 0 if generator is None else generator.initial_seed()
