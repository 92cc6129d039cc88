"""The torch classes that pipelines are made of, or bare stand-ins where torch is not installed."""

from __future__ import annotations

from typing import Any

try:
    from torch import Tensor as TorchTensor
    from torch.utils.data import DataLoader, IterableDataset
except ModuleNotFoundError:

    class IterableDataset:  # type: ignore[no-redef]
        """Stands for torch's class of the same name, so that pipelines have one base everywhere."""

    class TorchTensor:  # type: ignore[no-redef]
        """A type that no value has."""

    class DataLoader:  # type: ignore[no-redef]
        """Refuses to be made: worker processes are torch's."""

        def __init__(self, *args: Any, **kw: Any) -> None:
            raise ImportError(
                "a loader with worker processes is torch's, and torch cannot be imported: `pip install torch`, or "
                "iterate over the data set itself"
            )


__all__ = ["DataLoader", "IterableDataset", "TorchTensor"]
