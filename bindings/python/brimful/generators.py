"""What a sampler's order may be drawn from, and its states as text: generators of torch, Python and NumPy.

A sampler that keeps a state itself is one of them. Which ones an epoch depends on, and when they are set, is the work
of `driven` and `following`.
"""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Iterable
from typing import Any

import numpy
import torch

_KINDS = (torch.Generator, random.Random, numpy.random.Generator, numpy.random.RandomState)

# Those that a program shares with its samplers.
_SHARED = (torch.default_generator, random, numpy.random)


def generators_of(holders: Iterable[Any]) -> list[Any]:
    """The shared ones, and those that samplers, or whatever else `holders` are, keep as attributes."""
    known = {id(generator): generator for generator in _SHARED}
    for holder in holders:
        if isinstance(holder, _KINDS):
            known[id(holder)] = holder
        for _, value in sorted(getattr(holder, "__dict__", {}).items()):
            if isinstance(value, _KINDS) and not isinstance(value, random.SystemRandom):
                known[id(value)] = value
        if keeps_state(holder):
            known[id(holder)] = holder
    return list(known.values())


def keeps_state(holder: Any) -> bool:
    """Whether it can tell where it is, and be set there."""
    return callable(getattr(holder, "state_dict", None)) and callable(getattr(holder, "load_state_dict", None))


def saved_states(generators: list[Any]) -> list[Any]:
    """The states of generators as text, for a loader's state; of what keeps a state itself, that."""
    return [_state_of(generator) for generator in generators]


def check_states(generators: list[Any], states: list[Any]) -> None:
    """Raises an error for states that no such generators have."""
    for generator, state in zip(generators, states, strict=True):
        if not keeps_state(generator):
            _restore(_fresh(generator), state)


class Draws:
    """Sets generators as they were when an epoch began that is taken up again.

    The samplers' own stay so, since the epoch draws on; the shared ones go back to where the program has them.
    """

    def __init__(self, generators: list[Any], states: list[Any]) -> None:
        self._pairs = list(zip(generators, states, strict=False))

    def __enter__(self) -> None:
        self._kept = saved_states(list(_SHARED))
        for generator, state in self._pairs:
            _restore(generator, state)

    def __exit__(self, *_: object) -> None:
        for generator, state in zip(_SHARED, self._kept):
            _restore(generator, state)


def _state_of(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return base64.b64encode(generator.get_state().numpy().tobytes()).decode()
    if generator is random or isinstance(generator, random.Random):
        return json.dumps(generator.getstate())
    if isinstance(generator, numpy.random.Generator):
        return json.dumps(generator.bit_generator.state, default=_listed)
    if generator is numpy.random or isinstance(generator, numpy.random.RandomState):
        return json.dumps(generator.get_state(legacy=False), default=_listed)
    return copy.deepcopy(generator.state_dict())


def _restore(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        data = bytearray(base64.b64decode(state, validate=True))
        generator.set_state(torch.frombuffer(data, dtype=torch.uint8))
    elif generator is random or isinstance(generator, random.Random):
        version, numbers, gauss = json.loads(state)
        generator.setstate((version, tuple(numbers), gauss))
    elif isinstance(generator, numpy.random.Generator):
        generator.bit_generator.state = json.loads(state)
    elif generator is numpy.random or isinstance(generator, numpy.random.RandomState):
        generator.set_state(json.loads(state))
    else:
        generator.load_state_dict(copy.deepcopy(state))


def _fresh(generator: Any) -> Any:
    """Another one of the same kind."""
    if isinstance(generator, torch.Generator):
        return torch.Generator(generator.device)
    if isinstance(generator, numpy.random.Generator):
        return numpy.random.Generator(type(generator.bit_generator)())
    is_numpy = generator is numpy.random or isinstance(generator, numpy.random.RandomState)
    return numpy.random.RandomState() if is_numpy else random.Random()


def _listed(value: Any) -> Any:
    return value.tolist()
