"""Whether a data set still holds what it held when its loader was made, and a new engine where it does not.

What is compared is which objects a data set is made of and how long they are; what is in them is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .dataset import ShardDataset
from .engine import Controls, Engine
from .errors import InvalidOptionError
from .samplers import Order, own_sampler
from .sources import Source, Unknown, native_source


class Contents:
    """The objects that a data set of torch's or torchvision's kinds is made of, at one time."""

    def __init__(self, dataset: Any) -> None:
        self._held = list(_held(dataset))

    def is_still_of(self, dataset: Any) -> bool:
        now = list(_held(dataset))
        same = (was is is_now and size == size_now for (was, size), (is_now, size_now) in zip(self._held, now))
        return len(now) == len(self._held) and all(same)


class Renewing(Controls):
    """What a native `DataLoader` does when its data set was changed since it was made, as torch's loaders would."""

    _contents: Contents

    def _renew(self) -> None:
        """Makes the engine anew if the data set holds something else by now.

        Raises:
            InvalidOptionError: if it is read in another way now.
        """
        given = self._datasets[1]
        if self._contents.is_still_of(given):
            return
        words = "auto" if self.decoder in ("cpu", "gpu") else self.decoder, self.io
        try:
            source = native_source(given, *words)
            difference = None if _is_alike(source, self._source) else "its transforms or fields are others"
        except Unknown as error:
            difference = str(error)
        if difference is not None:
            raise InvalidOptionError(
                f"the data set was changed since the loader was made, and {difference}", hint="make the loader anew"
            )
        place, options = self._engine.state(), self._engine.options
        self._contents, self._source = Contents(given), source
        self._engine = Engine(source, options)
        if self._tuning is not None:
            self._ask_for_size(self._tuning.wanted)
        # An epoch of other samples that was begun is not gone on with.
        self._engine.native.set_epoch(place["epoch"] + (place["position"] > 0))
        if self._batching is None:
            order = Order(options["shuffle"], options["seed"], options["split"], options["remainder"])
            self._list_by(own_sampler(self.dataset, order, self.generator), type(self.batch_sampler))


def _is_alike(source: Source, other: Source) -> bool:
    """Whether samples of both are made in the same way."""
    one, two = source.compiled, other.compiled
    transforms = one.json == two.json and one.python == two.python
    return transforms and source.fields == other.fields and source.target_transform == other.target_transform


def _held(dataset: Any) -> Iterator[tuple[Any, int | None]]:
    """What a data set is made of, and the lengths of lists."""
    yield dataset, None
    if isinstance(dataset, ShardDataset):
        # What it holds is settled when it is made.
        return
    for name in ("indices", "samples", "datasets"):
        value = getattr(dataset, "__dict__", {}).get(name)
        if value is not None:
            yield value, len(value)
    for name in ("transform", "target_transform", "loader"):
        yield getattr(dataset, name, None), None
    members = getattr(dataset, "__dict__", {})
    for member in (members.get("dataset"), *(members.get("datasets") or ())):
        if member is not None:
            yield from _held(member)
