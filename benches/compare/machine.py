"""The machine, its packages and its processor time: what every file of results must name. It measures nothing."""

import importlib.metadata
import json
import os
import platform
import shlex
import sys
import time
from pathlib import Path

PACKAGES = (
    "brimful",
    "torch",
    "torchvision",
    "webdataset",
    "nvidia-dali-cuda130",
    "nvidia-dali-cuda120",
    "nvidia-ml-py",
    "pillow",
    "numpy",
)
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def document(**parts) -> dict:
    """A file of results: how it was made, where, and `parts`."""
    return {
        "version": 2,
        "command": shlex.join(["python", *sys.argv]),
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": facts(),
        "packages": {name: version for name in PACKAGES if (version := package_version(name))},
        **parts,
    }


def save(results: dict, out: Path | None) -> None:
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_name(out.name + ".partial")
        partial.write_text(json.dumps(results, indent=1) + "\n")
        partial.replace(out)


def say(line: str) -> None:
    """What happens now, for whoever watches."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def facts() -> dict:
    cpus = [line.partition(":")[2].strip() for line in read_lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = next((line.split()[1] for line in read_lines("/proc/meminfo") if line.startswith("MemTotal")), "0")
    return {
        "cpu": cpus[0] if cpus else platform.processor(),
        "cores": cores(),
        "cores_of_machine": os.cpu_count(),
        "memory_gb": round(int(memory) / 1e6, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        **gpu_facts(),
    }


def gpu_facts() -> dict:
    try:
        import pynvml

        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        driver, name = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlDeviceGetName(gpu)
        return {"gpu": name, "gpus": pynvml.nvmlDeviceGetCount(), "driver": driver}
    # Whatever is missing or in the way: then there is no GPU to tell of.
    except Exception:
        return {}


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def tree_cpu_s() -> float:
    """Processor seconds of this process and all below it, those that ended included."""
    children, seconds = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(fields[1]), []).append(int(entry))
            seconds[int(entry)] = sum(map(int, fields[11:15])) / TICKS_A_SECOND
    waiting, total = [os.getpid()], 0.0
    while waiting:
        process = waiting.pop()
        total += seconds.get(process, 0.0)
        waiting.extend(children.get(process, ()))
    return total


def machine_cpu_s() -> float:
    with open("/proc/stat") as stat:
        fields = [int(field) for field in stat.readline().split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / TICKS_A_SECOND


def read_lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
