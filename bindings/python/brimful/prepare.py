"""What accelerate's `prepare` asks of a loader, done by the loader itself: share, device, the end of an epoch.

accelerate makes a new torch loader from a fixed list of arguments, which would leave threads and options behind. It
takes a loader as it is if that says that it is prepared already; so a native loader says so, takes over what
accelerate would have done, and goes on natively.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import devices
from .engine import Engine, place_of
from .errors import InvalidOptionError, StateMismatchError
from .ranks import WHOLE, Split
from .samplers import Order, Planned, PlannedBatches, native_order, own_sampler


@dataclass(frozen=True)
class Preparation:
    """What an accelerator wants of a loader.

    Attributes:
        split: the share of this process, if the loader has none of its own.
        splits_batches: whether `batch_size` is that of all processes together.
        device: where batches go, or None to leave them where they are.
        seed: what a shuffle derives from where the loader was given nothing, or None.
        saves_state: whether the accelerator's checkpoints hold the loader's place.
    """

    split: Split
    splits_batches: bool
    device: Any
    seed: int | None
    saves_state: bool


def asked_by_accelerate(depth: int) -> Preparation | str | None:
    """What the accelerator wants that is about to prepare a loader, by reading `_is_accelerate_prepared`.

    accelerate hands nothing over with that question; what it was told, such as `split_batches`, stands in the
    accelerator alone, which is the `self` of the method that asks, `depth` frames up. None where somebody else asks; a
    sentence where accelerate wants what only its own loader does.
    """
    asking = sys._getframe(depth)
    if asking.f_code.co_name != "prepare_data_loader" or not asking.f_globals["__name__"].startswith("accelerate."):
        return None
    accelerator = asking.f_locals["self"]
    if accelerator.dispatch_batches:
        return "dispatch_batches=True reads on one process for all; leave it None, every process then reads its share"
    if str(accelerator.distributed_type).rsplit(".", 1)[-1] in ("XLA", "MEGATRON_LM"):
        return f"{accelerator.distributed_type} needs accelerate's own loader"
    places = asking.f_locals.get("device_placement")
    places = accelerator.device_placement if places is None else places
    return Preparation(
        split=_share(accelerator),
        splits_batches=accelerator.split_batches,
        device=accelerator.device if places else None,
        seed=getattr(accelerator.dataloader_config, "data_seed", None),
        saves_state=accelerator.use_stateful_dataloader,
    )


def _share(accelerator: Any) -> Split:
    """Processes that hold parts of one model see the same batches."""
    mesh = getattr(accelerator, "torch_device_mesh", None)
    if mesh is None:
        return Split(accelerator.process_index, accelerator.num_processes)
    sizes = {name: mesh[name].size() for name in mesh.mesh_dim_names}
    replicas = sizes.get("dp_replicate", 1) * sizes.get("dp_shard", 1)
    return Split(accelerator.process_index // (accelerator.num_processes // replicas), replicas)


class Preparing:
    """What a `DataLoader` has for accelerate: it says that it is prepared, and prepares itself."""

    @property
    def _is_accelerate_prepared(self) -> bool:
        if self._engine is None or self._preparation is not None:
            return self._engine is not None
        asked = asked_by_accelerate(depth=2)
        if isinstance(asked, Preparation) and self._is_foreign_order():
            asked = "a sampler gives the order, which accelerate shares out itself"
        if isinstance(asked, str):
            warn_of_rebuild(asked, stacklevel=5)
        if not isinstance(asked, Preparation):
            return False
        self._prepare(asked)
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        """accelerate notes on everything that it prepared that it did."""

    def _is_foreign_order(self) -> bool:
        """Whether the order is given, and is none that the engine could make itself."""
        return self._batching is not None and native_order(self._batching.sampler, self._datasets) is None

    def _prepare(self, asked: Preparation) -> None:
        """Takes over what accelerate would do around a loader of torch's."""
        options = dict(self._engine.options)
        if self._batching is not None:
            order = native_order(self._batching.sampler, self._datasets)
            options |= {"order": "planned", "shuffle": order.shuffle, "drop_last": self.drop_last}
            options |= {"split": order.split, "remainder": order.remainder}
            if order.seed is not None and self.seed is None:
                options["seed"] = order.seed
            self._batching = None
        is_settled = (self.split, self.rank, self.world_size) != (None, None, None)
        options["split"] = share_of(asked, options["split"], is_settled)
        if asked.splits_batches:
            options["batch_size"] = part_of_batch(options["batch_size"], asked.split)
        if options["split"].world_size > 1:
            # Gathered rank by rank, batches are then in the order of the epoch, and what was padded comes last.
            options["turn"] = options["batch_size"]
        if self.seed is None and self.generator is None and asked.seed is not None:
            options["seed"] = asked.seed
        if self.device is None and asked.device is not None and asked.device.type == "cuda":
            self._device = devices.name(asked.device)
            if self._stages is None:
                options["device"] = self._device
        if options != self._engine.options:
            place = self._engine.state()
            self._engine = Engine(self._source, options)
            if self._tuning is not None:
                self._ask_for_size(self._tuning.wanted)
            self._go_on_at(place)
        if not self._source.is_stream:
            order = Order(options["shuffle"], options["seed"], options["split"], options["remainder"])
            is_own = isinstance(self.sampler, Planned)
            self._list_by(own_sampler(self.dataset, order, self.generator), PlannedBatches, is_own)
        self._preparation = asked
        self.use_stateful_dataloader = asked.saves_state

    def _go_on_at(self, place: dict[str, int]) -> None:
        """Takes a place over that was loaded, or come to, before the loader was prepared."""
        if place["position"] or place["consumed"]:
            try:
                self._engine.native.load_state(**place)
                return
            except StateMismatchError as error:
                warnings.warn(
                    f"the loader begins the epoch anew, as its place does not fit what accelerate asks for: {error}; "
                    "load the state after prepare()",
                    stacklevel=6,
                )
        self._engine.native.set_epoch(place["epoch"])

    def _rows_over(self) -> int:
        """Rows in the last batch of all ranks together that is not full, as accelerate counts them; -1 if unknown."""
        if self._source.is_stream or self.drop_last:
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


class Announced(Iterator[Any]):
    """Batches of an epoch, with accelerate told of its beginning, its last batch and its end.

    One batch is taken ahead to know the last one. The place that `state_dict` tells is that of the batch given.

    Attributes:
        end_of_dataloader: whether the last batch was given.
        remainder: rows that the last batches of all ranks hold together, if they are not full; -1 if unknown.
    """

    def __init__(self, loader: Any, batches: Iterator[Any]) -> None:
        self._loader = loader
        self._batches = batches
        self._ahead: Any = None
        self._ahead_place: dict[str, int] | None = None
        self._failure: Exception | None = None
        self._has_begun = self._is_over = False
        self.end_of_dataloader = False
        self.remainder = -1

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Any:
        if not self._has_begun:
            self._begin()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._end()
            raise failure
        if self._ahead is None:
            self._end()
            raise StopIteration
        batch, place = self._ahead, self._ahead_place
        self._look_ahead()
        self._loader._engine.behind = place
        self.end_of_dataloader = self._ahead is None and self._failure is None
        return batch

    def _begin(self) -> None:
        self._has_begun = True
        self.remainder = self._loader._rows_over()
        _gradient_state()._add_dataloader(self)
        self._look_ahead()

    def _look_ahead(self) -> None:
        try:
            self._ahead = next(self._batches, None)
        except Exception as error:
            # The batch before it was good, and is given first.
            self._ahead, self._failure = None, error
        self._ahead_place = place_of(self._batches, self._loader._engine)

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._loader._engine.behind = None
            _gradient_state()._remove_dataloader(self)

    def __del__(self) -> None:
        if self._has_begun and not self._is_over and not sys.is_finalizing():
            self._is_over = True
            _gradient_state()._remove_dataloader(self)


def _gradient_state() -> Any:
    return sys.modules["accelerate.state"].GradientState()


def warn_of_rebuild(reason: str, stacklevel: int) -> None:
    """Says that accelerate makes a loader of its own from this one."""
    warnings.warn(
        f"accelerate makes a torch loader of this one, without brimful's threads and options, because {reason}",
        stacklevel=stacklevel,
    )


def part_of_batch(batch_size: int, split: Split) -> int:
    """This process's rows of a batch that all processes share, as `split_batches=True` asks."""
    if batch_size % split.world_size:
        raise InvalidOptionError(
            f"split_batches=True shares batches out, and {split.world_size} processes cannot share {batch_size} rows",
            hint=f"make batch_size a multiple of {split.world_size}, or leave split_batches away",
        )
    return batch_size // split.world_size


def share_of(preparation: Preparation, own: Split, is_settled: bool) -> Split:
    """A loader that shares samples out already is never split again."""
    return own if is_settled or own != WHOLE else preparation.split
