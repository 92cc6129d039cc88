"""All stages under webdataset's names; they are made in `fields`, `ordering`, `batching` and `keeping`."""

# ruff: noqa: F401 - what is imported here is what the module has

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from .batching import (
    _batched,
    _unbatched,
    _unlisted,
    batched,
    combine_values,
    default_collation_fn,
    unbatched,
    unlisted,
)
from .fields import (
    _associate,
    _decode,
    _extract_keys,
    _info,
    _log_keys,
    _map,
    _map_dict,
    _map_tuple,
    _rename,
    _rename_keys,
    _to_tuple,
    _xdecode,
    associate,
    decode,
    decode_bin,
    decode_pickle,
    decode_text,
    default_decoders,
    extract_keys,
    find_decoder,
    getfirst,
    info,
    log_keys,
    map,
    map_dict,
    map_tuple,
    parse_field_spec,
    rename,
    rename_keys,
    to_tuple,
    transform_with,
    xdecode,
)
from .handlers import reraise_exception
from .keeping import Cached, LMDBCached
from .ordering import _rsample, _select, _shuffle, detshuffle, pick, rsample, select, shuffle, slice
from .stages import FilterFunction, PipelineStage, RestCurried, pipelinefilter


def identity(x: Any) -> Any:
    """`x`."""
    return x


def compose2(f: Callable[[Any], Any], g: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that is `g` of `f`."""
    return lambda x: g(f(x))


def compose(*args: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that is the last of `args` of the one before it, and so on to the first."""
    return reduce(compose2, args, identity)


def pipeline(source: Iterable[Any], *args: Callable[[Any], Any]) -> Any:
    """`source` through stages, one after the other."""
    return compose(*args)(source)
