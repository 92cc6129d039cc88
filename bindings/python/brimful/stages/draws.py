"""Randomness of Python steps: each sample's generators start from a number made of (seed, epoch, sample).

So the same seed and epoch give the same pixels for any number of workers, ranks and rows. Python's `random`, NumPy and
torch have one global generator each in a process. A worker process has them to itself; in threads draws from torch's
are led to a generator of the thread (`torch_draws`), and draws from the others can only be seen or be made one at a
time. Which steps draw from what is told by their types; of functions that nobody knows it is watched.
"""

from __future__ import annotations

import contextlib
import enum
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy

from .gate import Gate

_MASK = (1 << 64) - 1

_NOTHING = contextlib.nullcontext()

# Generators are global to the process, and so is this: whoever changes them in a thread is alone in it, and who looks
# whether a function does shares it.
_GLOBALS = Gate()


class Source(enum.IntEnum):
    """What a step draws from; of several steps the greatest counts."""

    NONE = 0
    TORCH = 1
    UNKNOWN = 2
    GLOBAL = 3


class GlobalDraw(BaseException):
    """A step drew from a generator that threads share: what it made depends on what others drew.

    No `Exception`, since a user's function may catch those.
    """


_V1_FIXED = frozenset(
    {
        "ToTensor",
        "PILToTensor",
        "ToPILImage",
        "ConvertImageDtype",
        "Normalize",
        "Resize",
        "CenterCrop",
        "Pad",
        "FiveCrop",
        "TenCrop",
        "LinearTransformation",
        "Grayscale",
    }
)
_V1_GLOBAL = frozenset({"RandomChoice", "RandomOrder"})
# Their draws cannot be led to another generator.
_DIRICHLET = frozenset({"AugMix", "MixUp", "CutMix"})
_TIMM_FIXED = frozenset({"ToNumpy", "ToTensor", "MaybeToTensor", "MaybePILToTensor", "CenterCropOrPad"})


def source_of(step: Any) -> Source:
    """What `step` draws from, by its type."""
    kind = type(step)
    module, name = kind.__module__, kind.__name__
    if module.startswith("timm.data."):
        return Source.NONE if name in _TIMM_FIXED else Source.GLOBAL
    if module.startswith("torch.utils.data._utils.collate"):
        return Source.NONE
    is_v1 = module in ("torchvision.transforms.transforms", "torchvision.transforms.autoaugment")
    is_v2 = module.startswith("torchvision.transforms.v2.")
    if not is_v1 and not is_v2:
        return Source.NONE if module.startswith("torchvision.transforms._presets") else Source.UNKNOWN
    if name in _DIRICHLET or (is_v1 and name in _V1_GLOBAL):
        return Source.GLOBAL
    if name == "Lambda":
        return Source.UNKNOWN
    if is_v1 and name in _V1_FIXED:
        return Source.NONE
    members = getattr(step, "transforms", None)
    if members is None:
        return Source.TORCH
    own = Source.NONE if name == "Compose" else Source.TORCH
    return max(own, greatest(members))


def greatest(steps: Iterable[Any]) -> Source:
    """What several steps draw from."""
    return max((source_of(step) for step in steps), default=Source.NONE)


def seed_globals(draw: int) -> None:
    """Starts Python's, NumPy's and torch's global generators from `draw`."""
    random.seed(draw)
    numpy.random.seed(draw & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        # Not torch.manual_seed, which also seeds every GPU.
        torch.default_generator.manual_seed(draw & _MASK)


def of_batch(draws: list[int]) -> int:
    """A number for what is drawn once a batch, such as by a collate function."""
    mixed = 0
    for draw in draws:
        mixed = (mixed * 0x5851F42D4C957F2D + draw + 1) & _MASK
    return mixed


class Undrawn:
    """For steps that draw nothing."""

    # Whether steps get copies of rows: these are wanted a second time, or change under who keeps them.
    keeps_rows = False

    def batch(self) -> contextlib.AbstractContextManager:
        """Around all of a batch."""
        return _NOTHING

    def sample(self, draw: int) -> contextlib.AbstractContextManager:
        """Around a sample, whose draws derive from `draw`."""
        return _NOTHING

    def step(self, source: Source) -> contextlib.AbstractContextManager:
        """Around a step that draws from `source`."""
        return _NOTHING


class Owned(Undrawn):
    """For a process that has its generators to itself: they are set for each sample."""

    keeps_rows = True

    def sample(self, draw: int) -> contextlib.AbstractContextManager:
        seed_globals(draw)
        return _NOTHING


class Locked(Undrawn):
    """For threads: samples are made one at a time with the global generators, which are put back afterwards."""

    @contextlib.contextmanager
    def sample(self, draw: int):
        with _GLOBALS.alone():
            before = _States()
            seed_globals(draw)
            try:
                yield
            finally:
                before.restore()


class Led(Undrawn):
    """For threads: what is drawn from torch's global generator comes from one of this thread."""

    def __init__(self) -> None:
        from .torch_draws import ThreadGenerator

        self._mode = ThreadGenerator()

    def sample(self, draw: int) -> contextlib.AbstractContextManager:
        self._mode.seed(draw & _MASK)
        return _NOTHING

    def step(self, source: Source) -> contextlib.AbstractContextManager:
        # It costs something with every function of torch that is called.
        return _NOTHING if source == Source.NONE else self._mode


class Watched(Undrawn):
    """For threads and functions that nobody knows: torch's draws are led, others are an error, and so are those of
    torch's that cannot be led."""

    keeps_rows = True

    def __init__(self) -> None:
        self._led = Undrawn() if sys.modules.get("torch") is None else Led()
        self._is_new = True

    @contextlib.contextmanager
    def batch(self):
        with _GLOBALS.shared():
            before = _States()
        try:
            yield
        finally:
            with _GLOBALS.alone():
                # What another thread's function drew is back, or this was looked at before it was; whether this
                # thread's drew too cannot be told then.
                if before.is_stale or before.give_back():
                    _States.repairs += 1
                    raise GlobalDraw

    @contextlib.contextmanager
    def sample(self, draw: int):
        with self._led.sample(draw):
            if not self._is_new:
                with _GLOBALS.shared():
                    yield
                return
            # A function that draws mostly does so at once: first samples are made one at a time, so that what was
            # drawn can be given back exactly.
            self._is_new = False
            with _GLOBALS.alone():
                before = _States()
                try:
                    yield
                finally:
                    if before.give_back():
                        raise GlobalDraw

    def step(self, source: Source) -> contextlib.AbstractContextManager:
        return self._led.step(source)


class _States:
    """Where the global generators stand."""

    # How often a draw was found too late to know whose it was. Counted by who is alone in the gate.
    repairs = 0

    def __init__(self) -> None:
        self._seen = _States.repairs
        torch = sys.modules.get("torch")
        self._python = random.getstate()
        self._numpy = numpy.random.get_state()
        self._torch = None if torch is None else torch.default_generator.get_state()
        of_numpy = self._numpy[1].tobytes(), self._numpy[2:]
        self.marks = self._python, of_numpy, None if torch is None else self._torch.numpy().tobytes()

    @property
    def is_stale(self) -> bool:
        return self._seen != _States.repairs

    def give_back(self) -> bool:
        """Restores the generators if they were drawn from since, and tells whether they were."""
        was_drawn = _States().marks != self.marks
        if was_drawn:
            self.restore()
        return was_drawn

    def restore(self) -> None:
        """Puts the generators back to where they stood."""
        random.setstate(self._python)
        numpy.random.set_state(self._numpy)
        if self._torch is not None:
            sys.modules["torch"].default_generator.set_state(self._torch)


STRATEGIES: dict[str, Callable[[], Undrawn]] = {
    "none": Undrawn,
    "led": Led,
    "watched": Watched,
    "locked": Locked,
    "owned": Owned,
}
