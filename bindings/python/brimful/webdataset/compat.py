"""The module that webdataset has its main classes in; they are made in `dataset`, `fluent` and `loader`."""

from .dataset import FluidWrapper, WebDataset, check_empty
from .fluent import FluidInterface
from .loader import WebLoader

__all__ = ["FluidInterface", "FluidWrapper", "WebDataset", "WebLoader", "check_empty"]
