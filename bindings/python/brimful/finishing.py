"""What a loader makes of a native batch before the program gets it: torch's tensors, target transforms, pinned memory.

Steps that run sample by sample are not its matter; `stages` has them done by then.
"""

from __future__ import annotations

from typing import Any

import torch

from . import _native, devices
from .arrays import torch_column


class Finishing:
    """What a `DataLoader` does with each batch."""

    def _finish(self, batch: _native.Batch) -> Any:
        columns = [torch_column(column) for column in batch.columns]
        target_transform = self._source.target_transform
        if not self._auto_collation:
            # Samples by themselves, as torch gives them where there is no batching.
            columns = [_only_row(column) for column in columns]
            if target_transform is not None:
                columns[-1] = torch.utils.data.default_convert(target_transform(columns[-1]))
        elif target_transform is not None:
            last = columns[-1]
            values = last.tolist() if torch.is_tensor(last) and last.ndim == 1 else list(last)
            columns[-1] = torch.utils.data.default_collate([target_transform(value) for value in values])
        if self.pin_memory and self._device == "cpu" and devices.can_pin():
            columns = [column.pin_memory() if torch.is_tensor(column) else column for column in columns]
        return self._source.shaped(columns, list)

    def _finish_staged(self, batch: Any) -> Any:
        if self.pin_memory and self._device == "cpu" and devices.can_pin():
            return torch.utils.data._utils.pin_memory.pin_memory(batch)
        return batch


def _only_row(column: Any) -> Any:
    row = column[0]
    return row.item() if torch.is_tensor(row) and row.ndim == 0 else row
