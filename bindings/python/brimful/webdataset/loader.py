"""`WebLoader`: torch's loader as the source of a pipeline, or native threads in its place.

Where the native part of a data set ends with the data set itself, worker processes would only run native code and
send its batches through shared memory; threads of this process do the same without that.
"""

from __future__ import annotations

from typing import Any

from .fluent import FluidInterface
from .pipeline import DataPipeline
from .pytorch import DataLoader


class WebLoader(DataPipeline, FluidInterface):
    """A loader with the stages' methods; the arguments are those of torch's DataLoader."""

    def __init__(self, *args: Any, compat: str | None = None, **kw: Any) -> None:
        super().__init__(DataLoader(*args, **kw), compat=compat)
