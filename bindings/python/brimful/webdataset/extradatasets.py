"""Data sets for tests, and older ways to say how long an epoch is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .epochs import Epochs
from .pytorch import IterableDataset
from .stages import PipelineStage
from .utils import repeatedly as repeat_source


class MockDataset(IterableDataset):
    """One sample, `length` times."""

    def __init__(self, sample: Any, length: int) -> None:
        super().__init__()
        self.sample = sample
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.length):
            yield self.sample


class repeatedly(IterableDataset, PipelineStage):  # noqa: N801 - the name of the stage
    """A source again and again, for so many epochs or batches."""

    def __init__(
        self, source: Any = None, nepochs: int | None = None, nbatches: int | None = None, length: int | None = None
    ) -> None:
        super().__init__()
        self.source = source
        self.nepochs = nepochs
        self.nbatches = nbatches
        self.length = length

    def run(self, source: Iterable[Any]) -> Iterator[Any]:
        return repeat_source(source, nepochs=self.nepochs, nbatches=self.nbatches)

    invoke = run

    def __iter__(self) -> Iterator[Any]:
        return self.run(self.source)


class with_epoch(IterableDataset):  # noqa: N801 - the name of the stage
    """A data set in epochs of `length` samples, each going on where the last one ended."""

    def __init__(self, dataset: Iterable[Any], length: int) -> None:
        super().__init__()
        self.dataset = dataset
        self.length = length
        self._epochs: Epochs | None = None

    def invoke(self, dataset: Iterable[Any]) -> Iterator[Any]:
        if self._epochs is None:
            self._epochs = Epochs(lambda: repeat_source(dataset))
        return self._epochs.next(self.length)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_epochs": None}

    def __iter__(self) -> Iterator[Any]:
        return self.invoke(self.dataset)


class with_length(IterableDataset, PipelineStage):  # noqa: N801 - the name of the stage
    """A data set that says it has `length` samples."""

    def __init__(self, dataset: Iterable[Any], length: int) -> None:
        super().__init__()
        self.dataset = dataset
        self.length = length

    def invoke(self, dataset: Iterable[Any]) -> Iterator[Any]:
        return iter(dataset)

    run = invoke

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)

    def __len__(self) -> int:
        return self.length
