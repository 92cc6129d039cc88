"""A loader's place where a sampler gives the order: what the order was drawn from, so that it can be asked again.

Samplers themselves keep no place; how their numbers reach the engine is the work of `driven`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from . import ranks
from .continuing import Continuing
from .driven import Begun, Driver
from .errors import InvalidOptionError, StateMismatchError
from .generators import Draws, check_states, saved_states
from .samplers import seen_epoch


class Drawn(NamedTuple):
    """What the order of an epoch derives from, and what it was.

    Attributes:
        epoch: its number.
        draws: the states of `Batching.generators` when it began.
        order: rank, world size, and the digest of what was delivered of it, where they are known.
    """

    epoch: int
    draws: list[Any]
    order: tuple[int, int, int] | None = None


class Following(Continuing):
    """What a `DataLoader` does under a given sampler, beside what it does anyway."""

    @property
    def _listener(self) -> Any:
        """The sampler that is told epochs: the one given, or that of a batch sampler."""
        batch_sampler = None if self._batching is None else self._batching.batch_sampler
        if batch_sampler is None:
            return self.sampler
        return batch_sampler if hasattr(batch_sampler, "epoch") else getattr(batch_sampler, "sampler", batch_sampler)

    def _begin_driven(self) -> Begun:
        """Begins an epoch whose order the sampler gives; the sampler is asked when the first batch is."""
        epoch = self._engine.native.epoch()
        resumed, self._resumed = self._resumed, None
        is_resumed = resumed is not None and resumed.epoch == epoch.number
        if is_resumed:
            self._drawn = resumed

        def drive() -> Driver:
            generators = self._batching.generators()
            if not is_resumed:
                self._drawn = Drawn(epoch.number, saved_states(generators))
            draws = Draws(generators, resumed.draws) if is_resumed else None
            digest = self._expected(resumed.order, epoch) if is_resumed else None
            self._driver = Driver(epoch, self._source.native.samples, self._batching, draws, digest)
            return self._driver

        return Begun(drive, self._batches(None, epoch), lambda: self._wants_other(epoch.number))

    def state_dict(self) -> dict[str, Any]:
        """The place after the last batch that was delivered: a few integers. A pickled loader carries it along.

        Where a sampler gives the order, with what that was drawn from, and a digest of what was delivered: the sampler
        is asked again from the beginning of the epoch, and what was delivered is passed over.
        """
        state = super().state_dict()
        if self._batching is None:
            return state
        told = getattr(self._listener, "epoch", None)
        drawn = self._drawn_at(state)
        order = None if drawn.order is None else list(drawn.order)
        sampler = {"epoch": told if told is None else int(told), "draws": drawn.draws, "order": order}
        return {**state, "sampler": sampler}

    def _drawn_at(self, state: dict[str, int]) -> Drawn:
        """What the epoch of a place was drawn from, with the digest of what was delivered up to there."""
        if self._resumed is not None and self._resumed.epoch == state["epoch"]:
            return self._resumed
        if self._drawn is None or self._drawn.epoch != state["epoch"]:
            return Drawn(state["epoch"], self._coming_draws())
        driver = self._driver
        # What is left of an epoch after a change of ranks is another order, of which the digest says nothing.
        if driver is None or driver.number != state["epoch"] or state["consumed"] or self._batching.is_distributed:
            return self._drawn._replace(order=None)
        digest = driver.digest(state["position"])
        return self._drawn._replace(order=None if digest is None else (*_rank_of(self._listener), digest))

    def _expected(self, order: tuple[int, int, int] | None, epoch: Any) -> int | None:
        """The digest that the order must have; a state of another rank says nothing about this one's."""
        consumed, _ = epoch.start
        is_same = order is not None and consumed == 0 and order[:2] == _rank_of(self._listener)
        return order[2] if is_same else None

    def _coming_draws(self) -> list[Any]:
        """States as they will be when the sampler is asked: after the draw with which an iteration begins."""
        generators = self._batching.generators()
        drawn_by_torch = [generator for generator in generators if isinstance(generator, torch.Generator)]
        kept = [generator.get_state() for generator in drawn_by_torch]
        self._draw_as_torch()
        states = saved_states(generators)
        for generator, state in zip(drawn_by_torch, kept, strict=True):
            generator.set_state(state)
        return states

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Makes the next `iter()` go on where `state_dict` was taken; a stream is read again up to there.

        Raises:
            StateMismatchError: if it was taken with another seed or order or of other shards, or lies beyond the epoch.
        """
        state = dict(state_dict)
        sampler = state.pop("sampler", None)
        super().load_state_dict(state)
        self._drawn = self._resumed = self._driver = None
        if self._batching is None or sampler is None:
            return
        try:
            told, draws, order = sampler["epoch"], list(sampler["draws"]), sampler["order"]
            check_states(self._batching.generators(), draws)
            if order is not None:
                rank, world_size, digest = map(int, order)
                order = rank, world_size, digest
        except (TypeError, KeyError, ValueError, RuntimeError) as error:
            raise StateMismatchError(f"what a sampler drew from is no part of this state: {error}") from None
        self._resumed, listener = Drawn(state["epoch"], draws, order), self._listener
        if told is not None and not self._batching.is_distributed and hasattr(listener, "set_epoch"):
            listener.set_epoch(told)
            self._sampler_epoch = seen_epoch(listener)

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_iterator": None, "_driver": None, "_progress": None}
        if self._engine is not None and self._batching is not None:
            state["_resumed"] = self._drawn_at(self._engine.state())
        return state


def _rank_of(sampler: Any) -> tuple[int, int]:
    """The share that a sampler gives, as those of several ranks say it, or else this process's."""
    own = getattr(sampler, "rank", None), getattr(sampler, "num_replicas", None)
    if all(isinstance(number, int) for number in own):
        return own
    try:
        return tuple(ranks.find() or ranks.WHOLE)
    except InvalidOptionError:
        return tuple(ranks.WHOLE)
