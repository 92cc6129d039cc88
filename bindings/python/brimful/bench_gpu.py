"""How busy a GPU is over a stretch of time: its multiprocessors and its JPEG engines, as the driver counts them.

It knows nothing of programs: whatever else runs on the GPU counts too.
"""

from __future__ import annotations

import threading
from typing import Any

# Engines that the driver has numbers for; a GPU has fewer.
_JPEG_ENGINES = 8
_POLL_S = 0.2


class GpuUsage:
    """Put `begin` and `end` around a stretch.

    Shares come from the driver's performance counters where it has them (Hopper and later), and else from looking
    every fifth of a second. What is not known is None: without nvidia-ml-py, that is everything.
    """

    def __init__(self, uuid: str | None = None) -> None:
        """`uuid` as `nvidia-smi -L` prints it; None for the driver's first GPU."""
        self._nvml: Any = None
        self.why_not: str | None = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._gpu = _handle(pynvml, uuid)
            self._nvml = pynvml
        except ImportError:
            self.why_not = "nvidia-ml-py cannot be imported"
        except pynvml.NVMLError as error:
            self.why_not = str(error)
        self._counts = self._nvml is not None and self._has_counters()

    @classmethod
    def of_torch(cls, device: Any) -> GpuUsage:
        """Of a `torch.device`: CUDA and the driver number GPUs differently."""
        import torch

        uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
        return cls(None if uuid is None else f"GPU-{uuid}")

    def begin(self) -> None:
        """Begins a stretch."""
        self._seen: dict[str, list[float]] = {"gpu": [], "jpeg": []}
        self._first = self._sample()
        self._is_over = threading.Event()
        self._looks = threading.Thread(target=self._look, name="gpu usage", daemon=True)
        self._looks.start()

    def end(self) -> dict[str, Any]:
        """What the GPU did since `begin`, in percent.

        `sm_percent` is the share of multiprocessors with work, by `sm_source` "counters"; or, by "utilization", the
        share of the time in which any kernel ran, which says less. `jpeg_percent` is the mean of all JPEG engines.
        """
        self._is_over.set()
        self._looks.join()
        sm, engines = self._between(self._first, self._sample())
        any_kernel, jpeg = _mean(self._seen["gpu"]), _mean(self._seen["jpeg"])
        return {
            "sm_percent": _rounded(any_kernel if sm is None else sm),
            "sm_source": "utilization" if sm is None else "counters",
            "gpu_percent": _rounded(any_kernel),
            "jpeg_percent": _rounded(_mean(engines) if engines else jpeg),
            "jpeg_source": "counters" if engines else "utilization",
            "jpeg_engines_percent": [_rounded(share) for share in engines],
            **({} if self.why_not is None else {"usage_note": self.why_not}),
        }

    def _has_counters(self) -> bool:
        try:
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(self._gpu).isSupportedDevice)
        except (self._nvml.NVMLError, AttributeError):
            return False

    def _sample(self) -> Any:
        if not self._counts:
            return None
        try:
            sample = self._nvml.nvmlGpmSampleAlloc()
            self._nvml.nvmlGpmSampleGet(self._gpu, sample)
            return sample
        except self._nvml.NVMLError as error:
            self.why_not = str(error)
            return None

    def _between(self, first: Any, last: Any) -> tuple[float | None, list[float]]:
        """Multiprocessors, and each JPEG engine; frees the samples."""
        if first is None or last is None:
            return None, []
        nvml = self._nvml
        jpeg = range(nvml.NVML_GPM_METRIC_NVJPG_0_UTIL, nvml.NVML_GPM_METRIC_NVJPG_0_UTIL + _JPEG_ENGINES)
        wanted = [nvml.NVML_GPM_METRIC_SM_UTIL, *jpeg]
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(wanted)
        request.sample1, request.sample2 = first, last
        for place, metric in enumerate(wanted):
            request.metrics[place].metricId = metric
        try:
            nvml.nvmlGpmMetricsGet(request)
        except nvml.NVMLError as error:
            self.why_not = str(error)
            return None, []
        finally:
            nvml.nvmlGpmSampleFree(first)
            nvml.nvmlGpmSampleFree(last)
        known = [
            metric.value if metric.nvmlReturn == nvml.NVML_SUCCESS and metric.value == metric.value else None
            for metric in request.metrics[: len(wanted)]
        ]
        return known[0], [share for share in known[1:] if share is not None]

    def _look(self) -> None:
        while self._nvml is not None and not self._is_over.wait(_POLL_S):
            for name, look in (
                ("gpu", lambda: self._nvml.nvmlDeviceGetUtilizationRates(self._gpu).gpu),
                ("jpeg", lambda: self._nvml.nvmlDeviceGetJpgUtilization(self._gpu)[0]),
            ):
                try:
                    self._seen[name].append(look())
                except (self._nvml.NVMLError, AttributeError) as error:
                    self.why_not = str(error)


def _handle(nvml: Any, uuid: str | None) -> Any:
    if uuid is not None:
        try:
            return nvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        except nvml.NVMLError:
            # Some virtual machines give CUDA another name for it.
            if nvml.nvmlDeviceGetCount() != 1:
                raise
    return nvml.nvmlDeviceGetHandleByIndex(0)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
