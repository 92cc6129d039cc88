"""Names of devices: from what users of torch write to what the engine takes."""

from __future__ import annotations

import os
import site
import sys
from typing import Any

from .errors import InvalidOptionError


def name(device: Any) -> str:
    """`cpu` or `cuda:N` for None, a name, a number or a `torch.device`.

    "cuda" is the current GPU of torch where that is in use, else the first one. No context is made here.
    """
    if device is None:
        return "cpu"
    if isinstance(device, int) and not isinstance(device, bool):
        return f"cuda:{device}"
    written = str(device)
    if written == "cuda":
        torch = sys.modules.get("torch")
        return f"cuda:{torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else 0}"
    kind, _, number = written.partition(":")
    if kind in ("cpu", "cuda") and (not number or number.isdecimal()):
        return "cpu" if kind == "cpu" else written
    raise InvalidOptionError(f'device="{written}" is not served', hint='use "cpu", "cuda" or "cuda:1"')


def can_pin() -> bool:
    """Whether torch has a device that memory can be page-locked for; before torch 2.6 it knows of CUDA alone."""
    import torch

    return getattr(torch, "accelerator", torch.cuda).is_available()


def nvidia_folders() -> list[str]:
    """Folders of installed packages that may hold NVIDIA's libraries: wheels keep them off the loader's path."""
    places = [*sys.path, *site.getsitepackages(), site.getusersitepackages()]
    patterns = ("nvidia/nvjpeg/lib", "nvidia/nvtx/lib", "nvidia/cu13/lib", "nvidia/cu12/lib")
    found = (os.path.join(place, pattern) for place in dict.fromkeys(places) for pattern in patterns)
    return [folder for folder in found if os.path.isdir(folder)]
