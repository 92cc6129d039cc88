"""Draws from torch's global generator, led to one of the thread that draws.

torch has no generator a thread, but it tells a mode that is set for a thread of every function called there. Functions
that take a generator get this one's; those that draw and take none are refused.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from .draws import GlobalDraw

Tensor = torch.Tensor

_WITH_GENERATOR = frozenset(
    {
        torch.rand,
        torch.randn,
        torch.randint,
        torch.randperm,
        torch.normal,
        torch.bernoulli,
        torch.multinomial,
        torch.poisson,
        torch.binomial,
        Tensor.uniform_,
        Tensor.normal_,
        Tensor.random_,
        Tensor.bernoulli,
        Tensor.bernoulli_,
        Tensor.multinomial,
        Tensor.exponential_,
        Tensor.geometric_,
        Tensor.cauchy_,
        Tensor.log_normal_,
    }
)

_REFUSED = frozenset(
    function
    for function in (
        torch.dropout,
        torch.dropout_,
        torch.alpha_dropout,
        torch.feature_dropout,
        torch.feature_alpha_dropout,
        torch.rrelu,
        F.dropout,
        F.dropout1d,
        F.dropout2d,
        F.dropout3d,
        F.alpha_dropout,
        F.feature_alpha_dropout,
        F.rrelu,
        F.gumbel_softmax,
        getattr(torch, "_sample_dirichlet", None),
        getattr(torch, "_standard_gamma", None),
        getattr(torch, "_dirichlet_grad", None),
    )
    if function is not None
)


class ThreadGenerator(TorchFunctionMode):
    """While it is entered, this thread's draws come from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._generator = torch.Generator()

    def seed(self, draw: int) -> None:
        """Begins anew from `draw`, as torch's global generator would after the same seed."""
        self._generator.manual_seed(draw)

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        drawing = _DRAWING.get(function)
        if drawing is not None:
            return drawing(self._generator, function, args, kwargs or {})
        return function(*args, **kwargs) if kwargs else function(*args)


def _with_generator(generator: torch.Generator, function: Any, args: tuple, kwargs: dict) -> Any:
    if kwargs.get("generator") is None:
        kwargs = {**kwargs, "generator": generator}
    return function(*args, **kwargs)


def _like(generator: torch.Generator, function: Any, args: tuple, kwargs: dict) -> Any:
    return _LIKE[function](generator, *args, **kwargs)


def _refused(generator: torch.Generator, function: Any, args: tuple, kwargs: dict) -> Any:
    raise GlobalDraw


def _rand_like(generator: torch.Generator, like: Tensor, **options: Any) -> Tensor:
    return torch.empty_like(like, **options).uniform_(generator=generator)


def _randn_like(generator: torch.Generator, like: Tensor, **options: Any) -> Tensor:
    return torch.empty_like(like, **options).normal_(generator=generator)


def _randint_like(generator: torch.Generator, like: Tensor, *bounds: int, **options: Any) -> Tensor:
    low, high = options.pop("low", None), options.pop("high", None)
    if bounds:
        low, high = (0, bounds[0]) if len(bounds) == 1 and high is None else (bounds[0], (*bounds, high)[1])
    return torch.empty_like(like, **options).random_(low or 0, high, generator=generator)


# Those that make a tensor in the image of another take no generator in most versions.
_LIKE = {torch.rand_like: _rand_like, torch.randn_like: _randn_like, torch.randint_like: _randint_like}

_DRAWING = {
    **dict.fromkeys(_WITH_GENERATOR, _with_generator),
    **dict.fromkeys(_LIKE, _like),
    **dict.fromkeys(_REFUSED, _refused),
}
