"""What the bytes of a field say by its extension: numbers, texts, documents, arrays; images are elsewhere.

Pickles and what torch.load reads can run anything, so they are read only when that is allowed.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from typing import Any

import numpy

from . import permissions, utils


def torch_loads(data: bytes) -> Any:
    """What torch.save wrote; with the permission "torch" tensors and plain containers, with "pickle" anything.

    Raises:
        InvalidOptionError: without either permission.
    """
    if utils.enforce_security:
        raise ValueError("torch.loads is not allowed for security reasons when enforce_security is set.")
    granted = permissions.granted()
    if "pickle" not in granted:
        permissions.demand("torch", "torch.load on fields of shards", "arrays as `npy` need no permission")
    import torch

    return torch.load(io.BytesIO(data), weights_only="pickle" not in granted, map_location="cpu")


def unpickle_loads(data: bytes) -> Any:
    """What pickle wrote, with the permission "pickle".

    Raises:
        InvalidOptionError: without it.
    """
    if utils.enforce_security:
        raise ValueError("Unpickling is not allowed for security reasons when enforce_security is set.")
    permissions.demand("pickle", "unpickling of fields of shards", "`json`, `msg` and `npy` need no permission")
    import pickle

    return pickle.loads(data)


def text_loads(data: bytes) -> str:
    return data.decode("utf-8")


def int_loads(data: bytes) -> int:
    return int(data)


def json_loads(data: bytes) -> Any:
    return json.loads(data)


def tenbin_loads(data: bytes) -> list[numpy.ndarray]:
    from . import tenbin

    return tenbin.decode_buffer(data)


def msgpack_loads(data: bytes) -> Any:
    return _package("msgpack", "MessagePack").unpackb(data)


def cbor_loads(data: bytes) -> Any:
    return _package("cbor", "CBOR").loads(data)


def npy_loads(data: bytes) -> numpy.ndarray:
    return numpy.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def npz_loads(data: bytes) -> dict[str, numpy.ndarray]:
    with numpy.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)


decoders: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("txt", "text", "transcript"), text_loads),
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id"), int_loads),
    **dict.fromkeys(("json", "jsn"), json_loads),
    **dict.fromkeys(("pkl", "pickle", "pyd"), unpickle_loads),
    "pth": torch_loads,
    **dict.fromkeys(("ten", "tb"), tenbin_loads),
    **dict.fromkeys(("mp", "msg"), msgpack_loads),
    "npy": npy_loads,
    "npz": npz_loads,
    "cbor": cbor_loads,
}


def basichandlers(key: str, data: bytes) -> Any:
    """The value of a field by the last part of its extension, or None where `decoders` does not know that."""
    loads = decoders.get(extension(key))
    return None if loads is None else loads(data)


def extension(key: str) -> str:
    """The last dotted part of a field's name."""
    return re.sub(r".*[.]", "", key)


def _package(name: str, what: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"the field is {what}, which the package {name} reads: `pip install {name}`") from error
