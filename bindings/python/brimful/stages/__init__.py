"""The part of a loader that is Python: steps without a native form, and the making of batches by a user's function.

The native side decodes and does all geometry before the first Python step; from there on samples are worked on here, in
threads, or in processes where the steps hold the interpreter's lock. It reads no shards and decides no order.
"""

from __future__ import annotations

from .batches import StagedBatches
from .stages import WISHES, Single, Stages

__all__ = ["WISHES", "Single", "StagedBatches", "Stages"]
