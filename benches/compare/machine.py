"""What a measurement ran on, for its raw results."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> dict:
    cpus = [line.partition(":")[2].strip() for line in read_lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = next((line.split()[1] for line in read_lines("/proc/meminfo") if line.startswith("MemTotal")), "0")
    return {
        "cpu": cpus[0] if cpus else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "cores_of_machine": os.cpu_count(),
        "memory_gb": round(int(memory) / 1e6, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def read_lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []
