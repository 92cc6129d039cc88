"""brimful: a native training data loader. Tar shards in, ready-to-train batches out.

`DataLoader` takes the place of torch's and is imported only when it is asked for; `Loader` needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import io as io
from . import transforms
from ._native import __version__
from .autobatch import AutoBatch
from .dataset import ShardDataset
from .errors import (
    BrimfulError,
    CancelledError,
    DataWarning,
    DecodeError,
    DeviceError,
    FieldValueError,
    InvalidOptionError,
    LimitError,
    MissingFieldError,
    NotFoundError,
    ShardChangedError,
    ShardError,
    StateMismatchError,
    TooManyErrors,
    UnsupportedError,
)
from .loader import Loader

if TYPE_CHECKING:
    # Not in __all__: `from brimful import *` must work without torch, and must not hide the standard library's io.
    from .dataloader import DataLoader as DataLoader

__all__ = [
    "AutoBatch",
    "BrimfulError",
    "CancelledError",
    "DataWarning",
    "DecodeError",
    "DeviceError",
    "FieldValueError",
    "InvalidOptionError",
    "LimitError",
    "Loader",
    "MissingFieldError",
    "NotFoundError",
    "ShardChangedError",
    "ShardDataset",
    "ShardError",
    "StateMismatchError",
    "TooManyErrors",
    "UnsupportedError",
    "__version__",
    "transforms",
]


def __getattr__(name: str) -> Any:
    if name != "DataLoader":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "brimful.DataLoader is a torch DataLoader and torch cannot be imported; "
            "install it with `pip install torch`, or use brimful.Loader, which gives NumPy arrays"
        ) from error
    from .dataloader import DataLoader

    globals()[name] = DataLoader
    return DataLoader


def __dir__() -> list[str]:
    return sorted([*__all__, "DataLoader", "io"])
