"""The native loader behind `DataLoader` and `Loader`: made from their options, remade in other processes."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from . import _native, devices
from .dataset import count
from .errors import DataWarning, InvalidOptionError, StateMismatchError
from .explanation import Explanation
from .ranks import WHOLE, Split

SEEDS = 1 << 64


def native_loader(
    dataset: _native.Dataset,
    *,
    batch_size: int = 1,
    batch_size_max: int | None = None,
    drop_last: bool = False,
    order: str = "planned",
    in_order: bool = True,
    shuffle: bool = False,
    shuffle_window: int | None = None,
    seed: int = 0,
    num_workers: int = 0,
    prefetch: int = 0,
    dtype: str | None = None,
    layout: str = "NCHW",
    on_error: str = "raise",
    max_errors: float | None = None,
    quarantine: str | os.PathLike | None = None,
    split: Split = WHOLE,
    turn: int = 1,
    remainder: str = "pad",
    device: str = "cpu",
    device_batches_max: int = 16,
    route: str = "auto",
    nvtx: bool = False,
    delivery: str = "batches",
) -> _native.Loader:
    """A native loader; `num_workers` are threads, 0 for all cores. It delivers "batches", or "rows" to go on with."""
    if not isinstance(seed, int):
        raise InvalidOptionError(f"seed={seed!r} is no integer")
    if shuffle_window is not None and not shuffle:
        raise InvalidOptionError(f"shuffle_window={shuffle_window} without shuffle", hint="give shuffle=True with it")
    if max_errors is not None and (not isinstance(max_errors, (int, float)) or max_errors < 0):
        raise InvalidOptionError(f"max_errors={max_errors!r} is neither a count nor a share of bad samples")
    counts = {"batch_size": batch_size, "num_workers": num_workers, "prefetch": prefetch}
    counts |= {"rank": split.rank, "world_size": split.world_size}
    if shuffle_window is not None:
        counts["shuffle_window"] = shuffle_window
    for name, value in counts.items():
        count(name, value)
    if not 1 <= count("device_batches_max", device_batches_max) <= 1024:
        raise InvalidOptionError(f"device_batches_max={device_batches_max} is not between 1 and 1024")
    return _native.Loader(
        dataset,
        batch_size=batch_size,
        batch_size_max=batch_size_max or batch_size,
        drop_last=drop_last,
        order=order,
        in_order=in_order,
        shuffle=shuffle,
        shuffle_window=None if dataset.samples is None else shuffle_window,
        # Of a stream the window counts samples; there is no index that would know the shards.
        shuffle_samples=shuffle_window if dataset.samples is None and shuffle_window is not None else 1000,
        seed=seed % SEEDS,
        threads=num_workers,
        readers=0,
        prefetch=prefetch,
        dtype=None if dtype is None else str(dtype).rsplit(".", 1)[-1],
        layout=layout,
        on_error=on_error,
        max_errors=max_errors,
        quarantine=quarantine,
        rank=split.rank,
        world_size=split.world_size,
        turn=turn,
        remainder=remainder,
        device=device,
        device_batches_max=device_batches_max,
        route=route,
        nvjpeg_folders=devices.nvidia_folders() if device != "cpu" else [],
        nvtx=nvtx,
        delivery=delivery,
    )


class Engine:
    """A data set, options, and the native loader made from them.

    It can be pickled; the copy goes on at the same place. In a worker process of torch it decodes on one thread.
    """

    def __init__(self, dataset: Any, options: dict[str, Any]) -> None:
        self.dataset = dataset
        self.options = options
        self._loader: _native.Loader | None = None
        self._state: dict[str, int] | None = None
        # Where the consumer stands, if a batch was taken ahead of it.
        self.behind: dict[str, int] | None = None
        self._pid = os.getpid()
        self.native  # noqa: B018 - made here for its checks

    @property
    def native(self) -> _native.Loader:
        """The native loader of this process."""
        if self._loader is not None and self._pid != os.getpid() and in_worker():
            # It came along with a fork, and would start as many threads in each worker as in the parent.
            self._state = self._loader.state()
            self._loader = None
        if self._loader is None:
            options = {**self.options, "num_workers": 1} if in_worker() else self.options
            self._loader = native_loader(self.dataset.native, **options)
            self._pid = os.getpid()
            if self._state is not None:
                self._loader.load_state(**self._state)
        return self._loader

    def state(self) -> dict[str, int]:
        """The place after the last batch that the consumer has."""
        return self.native.state() if self.behind is None else self.behind

    def reached(self) -> dict[str, int]:
        """The place after the last batch that was made."""
        return self.native.state()

    def order(self, epoch: int | None) -> list[int]:
        """Numbers of this rank's samples in the order of `epoch`, or of the one it is in."""
        order = self.native.order(self.state()["epoch"] if epoch is None else epoch)
        if order is None:
            raise TypeError("the order of a stream of shards is known only once it was read")
        return order

    def __getstate__(self) -> dict[str, Any]:
        state = self._state if self._loader is None else self.state()
        return {**self.__dict__, "_loader": None, "_state": state, "behind": None}


def place_of(batches: Any, engine: Any) -> Any:
    """Where the consumer of `batches` stands: they say it by a `place` if they take some ahead of it."""
    place = getattr(batches, "place", None)
    return engine.reached() if place is None else place


class Batches(Iterator[Any]):
    """The batches of one epoch, each as `finish` makes it.

    `is_other`, called with the epoch's number before the first batch, says whether another one is wanted by now;
    `epoch` is one that was begun already; `stacklevel` says from where the program's code is seen.
    """

    def __init__(
        self,
        engine: Engine,
        finish: Callable[[_native.Batch], Any],
        timeout_s: float | None = None,
        is_other: Callable[[int], bool] | None = None,
        epoch: _native.Epoch | None = None,
        stacklevel: int = 2,
    ) -> None:
        self._loader = engine.native
        self._epoch = self._loader.epoch() if epoch is None else epoch
        self._length = self._loader.batches
        self._finish = finish
        self._timeout_s = timeout_s
        self._is_other = is_other
        self._stacklevel = stacklevel

    def __next__(self) -> Any:
        if self._is_other is not None:
            is_other, self._is_other = self._is_other, None
            if is_other(self._epoch.number):
                self._epoch = self._loader.epoch()
        try:
            batch = self._epoch.next_batch(self._timeout_s)
        except TimeoutError:
            raise RuntimeError(f"DataLoader timed out after {self._timeout_s} seconds") from None
        for sentence in self._loader.notices():
            warnings.warn(sentence, DataWarning, stacklevel=self._stacklevel)
        if batch is None:
            raise StopIteration
        return self._finish(batch)

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("an epoch over a stream of shards has no length")
        return self._length


class Controls:
    """What both loaders offer beside iteration. `_engine` is None where torch's machinery does the work."""

    _engine: Engine | None
    # On torch's machinery, the number of the next epoch if a seed governs them.
    _torch_epoch: int | None = None

    def __len__(self) -> int:
        batches = self._native().batches
        if batches is None:
            raise TypeError('a loader over a stream of shards has no length; access="indexed" gives it one')
        return batches

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the one that the next `iter()` begins; otherwise each is one more than the last.

        The same epoch set again is replayed. After `load_state_dict`, setting the epoch of the state keeps its place.
        """
        self._native().set_epoch(count("epoch", epoch))
        self._engine.behind = None

    def state_dict(self) -> dict[str, int]:
        """The place after the last batch that was delivered: a few integers. A pickled loader carries it along."""
        return self._engine.state()

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Makes the next `iter()` go on where `state_dict` was taken; a stream is read again up to there.

        Raises:
            StateMismatchError: if it was taken with another seed or order or of other shards, or lies beyond the epoch.
        """
        if state_dict.get("engine") == "torch":
            raise StateMismatchError(
                "the saved state is of a loader that ran on torch's machinery, and this one runs natively",
                hint="loader.explain() says why; make the loader as it was when the state was saved",
            )
        try:
            self._native().load_state(**state_dict)
        except (TypeError, OverflowError) as error:
            raise StateMismatchError(f"this is no state of a brimful loader: {error}") from None
        self._engine.behind = None
        return None

    def stats(self) -> dict[str, Any]:
        """What each stage did since the threads were started, and which one is the bottleneck.

        Of a stream, `"stream"` says what its shards held, as far as they were read: among it what was lost.
        """
        return {"engine": "native", **self._native().stats()}

    def release_idle(self) -> int:
        """Gives device memory back that no batch uses now; the number of batches it had room for."""
        return self._native().release_idle()

    def bad_samples(self) -> list[dict[str, Any]]:
        """Samples that were left out under on_error="skip" or "replace", each once, at most the first 1,000.

        One whose kind is "shard" stands for all that was left of a stream's shard, of unknown number. The first few
        are also told as a `DataWarning` when they are met, the rest summed up at the end of an epoch.
        """
        return self._native().bad_samples()

    def explain(self) -> Explanation:
        """What runs natively, what in Python, and why."""
        raise NotImplementedError

    def _native(self) -> _native.Loader:
        if self._engine is None:
            raise InvalidOptionError(
                "this loader runs on torch's machinery, which has no such thing", hint="loader.explain() says why"
            )
        return self._engine.native


def in_worker() -> bool:
    """Whether this process is a worker of a torch loader, or of ours."""
    torch_data = sys.modules.get("torch.utils.data")
    return torch_data is not None and torch_data.get_worker_info() is not None
