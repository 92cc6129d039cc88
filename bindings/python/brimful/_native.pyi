from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

__version__: str
jpeg_backends: list[str]

class Tensor:
    @property
    def shape(self) -> list[int]: ...
    @property
    def strides(self) -> list[int]: ...
    @property
    def dtype(self) -> str: ...
    def __len__(self) -> int: ...
    def __dlpack__(
        self,
        *,
        stream: Any | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class DeviceTensor:
    @property
    def shape(self) -> list[int]: ...
    @property
    def strides(self) -> list[int]: ...
    @property
    def dtype(self) -> str: ...
    def __len__(self) -> int: ...
    def __dlpack__(
        self,
        *,
        stream: Any | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Batch:
    @property
    def epoch(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def samples(self) -> list[int]: ...
    @property
    def columns(self) -> list[Tensor | DeviceTensor | list[Any]]: ...
    def __len__(self) -> int: ...

class Dataset:
    def __init__(
        self,
        patterns: Sequence[str | PathLike[str]],
        *,
        fields: Sequence[str],
        transform: str,
        mode: str,
        exif: bool,
        decoder: str,
        truncated: str,
        io: str,
        damage: str,
        memory_limit_bytes: int,
        access: str,
        key_split: str,
        duplicates: str,
        keep_appledouble: bool,
        index_cache: str | PathLike[str] | None,
        index_threads: int,
        progress: Callable[[int, int], object] | None,
    ) -> None: ...
    @property
    def samples(self) -> int | None: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def paths(self) -> list[Path]: ...
    @property
    def fingerprint(self) -> int: ...
    @property
    def image_size(self) -> tuple[int, int] | None: ...
    @property
    def image_fields(self) -> list[bool]: ...
    def key(self, ordinal: int) -> bytes | None: ...

class Loader:
    def __init__(
        self,
        dataset: Dataset,
        *,
        batch_size: int,
        drop_last: bool,
        shuffle: bool,
        shuffle_window: int | None,
        shuffle_samples: int,
        seed: int,
        threads: int,
        readers: int,
        prefetch: int,
        dtype: str | None,
        layout: str,
        on_error: str,
        max_errors: float | None,
        quarantine: str | PathLike[str] | None,
        rank: int,
        world_size: int,
        remainder: str,
        device: str,
        device_batches_max: int,
        route: str,
        nvjpeg_folders: Sequence[str],
        nvtx: bool,
    ) -> None: ...
    @property
    def batches(self) -> int | None: ...
    @property
    def samples(self) -> int | None: ...
    @property
    def threads(self) -> tuple[int, int]: ...
    @property
    def device(self) -> str: ...
    def release_idle(self) -> int: ...
    def epoch(self) -> Epoch: ...
    def set_epoch(self, epoch: int) -> None: ...
    def fetch(self, ordinals: Sequence[int], epoch: int) -> Batch: ...
    def state(self) -> dict[str, int]: ...
    def load_state(
        self,
        *,
        version: int,
        seed: int,
        epoch: int,
        position: int,
        world_size: int,
        fingerprint: int,
        consumed: int = 0,
    ) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def notices(self) -> list[str]: ...
    def bad_samples(self) -> list[dict[str, Any]]: ...

class Epoch:
    @property
    def number(self) -> int: ...
    def next_batch(self, timeout_s: float | None = None) -> Batch | None: ...
    def __iter__(self) -> Epoch: ...
    def __next__(self) -> Batch: ...

def decode_image(data: bytes | bytearray, *, mode: str, decoder: str, exif: bool) -> Tensor: ...
def check_transform(json: str) -> str: ...
def cli_main(argv: Sequence[str]) -> int: ...
def page_html(json: str) -> str: ...
def page_text(json: str) -> str: ...
def write_file(path: str | PathLike[str], text: str) -> None: ...
def make_demo_shards(
    dir: str | PathLike[str],
    *,
    samples: int,
    shards: int,
    seed: int,
    threads: int,
    progress: Callable[[int, int], object] | None,
) -> list[Path]: ...
