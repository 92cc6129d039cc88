"""Stage 1: is the machine healthy? Large matrix products and copies, links, clocks, nodes and versions."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .. import _native
from ..step_clock import Probe

SIDE_GPU = 8192
SIDE_CPU = 512
COPY_BYTES_GPU = 256 << 20
COPY_BYTES_CPU = 32 << 20


def check(device: torch.device, probe: Probe, seconds: float, root: Path = Path("/")) -> dict[str, Any]:
    """What the device and its surroundings do; what needs a GPU is None without one."""
    found: dict[str, Any] = {"device": str(device), "torch": torch.__version__, "probe": probe.told}
    found |= {"closed_nodes": closed_nodes(root), "version_conflicts": version_conflicts(root)}
    is_gpu = device.type == "cuda"
    found["flops"] = {name: _products_per_s(device, dtype, seconds / 4) for name, dtype in _dtypes(is_gpu).items()}
    found["copies"] = _copies(device, seconds / 4)
    if not is_gpu:
        found["note"] = "no GPU: clocks, throttling, links and the share of a known GPU's rates need one"
        return found
    properties = torch.cuda.get_device_properties(device)
    found["gpu"] = properties.name
    known = known_gpu(properties.name)
    if known is not None:
        found["half_share"] = found["flops"]["half"] / known["half_flops"]
        found["memory_share"] = found["copies"]["device_bytes_per_s"] / known["memory_bytes_per_s"]
        found["source"] = known["citation"]
    found |= {"reading": probe.reading(), "link": link(pci_address(properties), root)}
    return found


def readings(found: dict[str, Any]) -> dict[str, Any]:
    """What of it tells findings."""
    reading, pcie = found.get("reading") or {}, found.get("link") or {}
    throttle = reading.get("throttle") or {}
    told = {
        "closed_nodes": found["closed_nodes"],
        "version_conflicts": found["version_conflicts"],
        "pinned_bytes_per_s": found["copies"].get("pinned_bytes_per_s"),
        "is_throttled": (throttle.get("thermal") or throttle.get("hardware")) if throttle else None,
        "sm_clock_mhz": reading.get("sm_clock_mhz"),
        "other_processes": max(0, reading["processes"] - 1) if reading.get("processes") is not None else None,
    }
    return {**told, **pcie}


def known_gpu(name: str) -> dict[str, Any] | None:
    """The data sheet of a GPU by its name."""
    bounds = _native.roofline(name, "half", 1.0, 1.0, 1.0)
    return None if bounds is None else json.loads(bounds)["gpu"]


def closed_nodes(root: Path = Path("/")) -> list[str]:
    """Device nodes of GPUs that this process cannot open."""
    folder = root / "dev"
    nodes = sorted(folder.glob("nvidia[0-9]*")) + [folder / name for name in ("nvidiactl", "nvidia-uvm")]
    return [str(node) for node in nodes if node.exists() and not os.access(node, os.R_OK | os.W_OK)]


def version_conflicts(root: Path = Path("/")) -> list[str]:
    """Versions of driver and torch that do not fit."""
    try:
        words = (root / "proc/driver/nvidia/version").read_text().split()
    except OSError:
        return []
    driver = next((word for word in words if word[0].isdigit() and "." in word), "unknown")
    if torch.version.cuda is None:
        return [f"the driver {driver} is loaded, and this torch {torch.__version__} is built without CUDA"]
    if not torch.cuda.is_available():
        return [
            f"torch {torch.__version__} is built for CUDA {torch.version.cuda}, which the driver {driver} does not run"
        ]
    return []


def link(address: str | None, root: Path = Path("/")) -> dict[str, Any]:
    """Lanes and generation of a PCI device's link, now and at most."""
    if address is None:
        return {}
    folder = root / "sys/bus/pci/devices" / address
    generations = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}

    def text(name: str) -> str:
        try:
            return (folder / name).read_text().strip()
        except OSError:
            return ""

    found: dict[str, Any] = {}
    for suffix, which in (("", "current"), ("_max", "max")):
        width = text(f"{which}_link_width")
        if width.isdigit():
            found[f"pcie_width{suffix}"] = int(width)
        generation = generations.get(text(f"{which}_link_speed").split(" ")[0])
        if generation is not None:
            found[f"pcie_generation{suffix}"] = generation
    return found


def pci_address(properties: Any) -> str | None:
    """The PCI address of a GPU as the kernel writes it; None where torch does not tell."""
    numbers = [getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
    if any(number is None for number in numbers):
        return None
    return "{:04x}:{:02x}:{:02x}.0".format(*numbers)


def _dtypes(is_gpu: bool) -> dict[str, torch.dtype]:
    return {"float32": torch.float32, "half": torch.bfloat16} if is_gpu else {"float32": torch.float32}


def _products_per_s(device: torch.device, dtype: torch.dtype, seconds: float) -> float:
    side = SIDE_GPU if device.type == "cuda" else SIDE_CPU
    one, other = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return 2 * side**3 * rate(lambda: torch.mm(one, other), device, seconds)


def _copies(device: torch.device, seconds: float) -> dict[str, float]:
    size = COPY_BYTES_GPU if device.type == "cuda" else COPY_BYTES_CPU
    here, there = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
    # A copy reads and writes.
    found = {"device_bytes_per_s": 2 * size * rate(lambda: there.copy_(here), device, seconds)}
    if device.type != "cuda":
        return found
    pageable = torch.zeros(size, dtype=torch.uint8)
    pinned = torch.zeros(size, dtype=torch.uint8, pin_memory=True)
    found["pageable_bytes_per_s"] = size * rate(lambda: there.copy_(pageable), device, seconds)
    found["pinned_bytes_per_s"] = size * rate(lambda: there.copy_(pinned, non_blocking=True), device, seconds)
    return found


def rate(work: Callable[[], Any], device: torch.device, seconds: float) -> float:
    """How often a second `work` is done."""
    finish = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for _ in range(2):
        work()
    finish()
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds or done < 2:
        work()
        done += 1
        if done % 8 == 0:
            finish()
    finish()
    return done / (time.perf_counter() - begin)
