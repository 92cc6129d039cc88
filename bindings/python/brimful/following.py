"""A loader's place where a sampler gives the order: what the order was drawn from, so that it can be asked again.

Samplers themselves keep no place; how their numbers reach the engine is the work of `driven`.
"""

from __future__ import annotations

from typing import Any

from .driven import Begun, Draws, Driver, check_states, saved_states
from .engine import Controls
from .errors import StateMismatchError
from .samplers import seen_epoch


class Following(Controls):
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
        is_resumed = resumed is not None and resumed[0] == epoch.number
        if is_resumed:
            self._drawn = resumed

        def drive() -> Driver:
            generators = self._batching.generators()
            if not is_resumed:
                self._drawn = (epoch.number, saved_states(generators))
            draws = Draws(generators, resumed[1]) if is_resumed else None
            return Driver(epoch, self._source.native.samples, self._batching, draws)

        return Begun(drive, self._batches(None, epoch), lambda: self._wants_other(epoch.number))

    def state_dict(self) -> dict[str, Any]:
        """The place after the last batch that was delivered: a few integers. A pickled loader carries it along.

        Where a sampler gives the order, with what that was drawn from, as text: the sampler is asked again from the
        beginning of the epoch, and what was delivered is passed over.
        """
        state = super().state_dict()
        if self._batching is None:
            return state
        told = getattr(self._listener, "epoch", None)
        return {**state, "sampler": {"epoch": told if told is None else int(told), "draws": self._draws_of(state)}}

    def _draws_of(self, state: dict[str, int]) -> list[str]:
        for drawn in (self._resumed, self._drawn):
            if drawn is not None and drawn[0] == state["epoch"]:
                return drawn[1]
        # As they will be when the sampler is asked: after the draw with which an iteration begins.
        generators = self._batching.generators()
        kept = [generator.get_state() for generator in generators]
        self._draw_as_torch()
        states = saved_states(generators)
        for generator, state in zip(generators, kept, strict=True):
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
        self._drawn = self._resumed = None
        if self._batching is None or sampler is None:
            return
        try:
            told, draws = sampler["epoch"], list(sampler["draws"])
            check_states(self._batching.generators(), draws)
        except (TypeError, KeyError, ValueError, RuntimeError) as error:
            raise StateMismatchError(f"what a sampler drew from is no part of this state: {error}") from None
        self._resumed, listener = (state["epoch"], draws), self._listener
        if told is not None and not self._batching.is_distributed and hasattr(listener, "set_epoch"):
            listener.set_epoch(told)
            self._sampler_epoch = seen_epoch(listener)

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_iterator": None}
        if self._engine is not None and self._batching is not None:
            place = self._engine.state()
            state["_resumed"] = (place["epoch"], self._draws_of(place))
        return state
