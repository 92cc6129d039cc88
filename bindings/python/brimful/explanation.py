"""What a loader does where, in words and as data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Explanation:
    """Printed, it is a short text; its attributes are for programs.

    Attributes:
        engine: "native", "torch" where torch's own machinery does the work, or "python" where no step is native.
        native: steps that run natively, in order.
        python: steps that run in Python, in order.
        reasons: why the engine is torch's, or why a step runs in Python.
        notes: what else is worth knowing.
    """

    engine: str
    native: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        rows = [("engine", (self.engine,)), ("native", self.native), ("python", self.python)]
        lines = [f"{name:<7} {', '.join(steps) or '-'}" for name, steps in rows]
        lines += [f"why     {reason}" for reason in self.reasons]
        lines += [f"note    {note}" for note in self.notes]
        return "\n".join(lines)


def stream_notes(dataset) -> tuple[str, ...]:
    """What it costs that a data set is a stream, if it is one."""
    if not dataset.is_stream:
        return ()
    return (
        "a stream of shards: no length, no samples by number, shuffled through a window instead of exactly, "
        'resumed by reading up to the place; uncompressed shards, or access="indexed", have none of these limits',
    )


def transform_steps(names: tuple[str, ...], python: tuple) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Native and Python steps of a transform, by name."""
    return names, tuple(getattr(step, "__qualname__", type(step).__name__) for step in python)
