"""How the ranks of a job come to one decision: each brings numbers, and all get the least of each.

Every rank must call at the same step, as with any collective.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from .errors import InvalidOptionError


class Agreement:
    """The ranks of torch.distributed, or this process alone where that does not run.

    Numbers go over a group of their own on the CPU, so that agreeing waits for no GPU.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self._is_ready = group is not None

    @property
    def world_size(self) -> int:
        """Ranks that must agree."""
        distributed = running()
        return 1 if distributed is None else distributed.get_world_size(self._group)

    def least(self, numbers: Sequence[float]) -> list[float]:
        """The least of each number over all ranks."""
        distributed = running()
        if distributed is None or distributed.get_world_size(self._group) == 1:
            return list(numbers)
        import torch

        if not self._is_ready:
            self._is_ready = True
            if "gloo" not in str(distributed.get_backend()).lower():
                self._group = distributed.new_group(backend="gloo")
        tensor = torch.tensor(list(numbers), dtype=torch.float64)
        distributed.all_reduce(tensor, op=distributed.ReduceOp.MIN, group=self._group)
        return tensor.tolist()

    def check_alike(self, what: dict[str, float]) -> None:
        """Makes sure that all ranks were given the same numbers.

        Raises:
            InvalidOptionError: on all ranks, naming the first number that differs, with its least and its greatest.
        """
        values = list(what.values())
        both = self.least([*values, *(-value for value in values)])
        for n, name in enumerate(what):
            lowest, highest = both[n], -both[n + len(values)]
            if lowest != highest:
                raise InvalidOptionError(
                    f"ranks differ in {name}: from {lowest:g} to {highest:g}",
                    hint="batches change on all ranks at the same step only if all are set up alike",
                )


def running() -> Any:
    """torch.distributed where it runs, else None."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed
