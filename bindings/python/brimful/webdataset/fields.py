"""Stages that work on the fields of samples: decode, map, rename, pick, and make tuples of them.

A failed sample goes to the stage's handler, which says whether to go on without it, stop, or raise.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatch
from typing import Any

from . import autodecode, permissions
from .handlers import reraise_exception
from .stages import pipelinefilter

Handler = Callable[[Exception], bool]


def getfirst(a: dict, keys: str | Sequence[str], default: Any = None, missing_is_error: bool = True) -> Any:
    """The value of the first of `keys` (with `;` between them) that there is."""
    if isinstance(keys, str):
        assert " " not in keys, f"{keys!r} has a blank in it; alternatives have a ; between them"
        keys = keys.split(";")
    for key in keys:
        if key in a:
            return a[key]
    if missing_is_error:
        raise ValueError(f"there is none of the fields {list(keys)}, only {list(a)}")
    return default


def parse_field_spec(fields: str | Iterable[str]) -> list[list[str]]:
    """`"png;jpg cls"` as `[["png", "jpg"], ["cls"]]`."""
    return [field.split(";") for field in (fields.split() if isinstance(fields, str) else fields)]


def transform_with(sample: Sequence[Any], transformers: Sequence[Callable | None] | None) -> Sequence[Any]:
    """The values of `sample`, the first ones each through its function; None leaves one as it is."""
    if not transformers:
        return sample
    assert len(transformers) <= len(sample), f"{len(transformers)} functions are too many for {len(sample)} values"
    functions = [*transformers, *[None] * (len(sample) - len(transformers))]
    return [value if function is None else function(value) for value, function in zip(sample, functions)]


def _each(data: Iterable[Any], handler: Handler, function: Callable[[Any], Any]) -> Iterator[Any]:
    """What `function` makes of each sample; `handler` is told of exceptions."""
    for sample in data:
        try:
            made = function(sample)
        except Exception as error:
            if handler(error):
                continue
            break
        yield made


def _decode(data: Iterable[dict], *args: Any, handler: Handler = reraise_exception, **kw: Any) -> Iterator[dict]:
    """Decodes samples; `args` are image specs and handlers, `kw` those of `autodecode.Decoder`."""
    handlers = [autodecode.imagehandler(arg) if isinstance(arg, str) else arg for arg in args]
    yield from _each(data, handler, autodecode.Decoder(handlers, **kw))


def _map(data: Iterable[Any], f: Callable[[Any], Any], handler: Handler = reraise_exception) -> Iterator[Any]:
    """`f` of each sample; None leaves it out, and a dict has its `__key__` again."""

    def mapped(sample: Any) -> Any:
        # The key is read first: f may well change the sample in place.
        key = sample.get("__key__") if isinstance(sample, dict) else None
        result = f(sample)
        if isinstance(sample, dict) and isinstance(result, dict):
            result["__key__"] = key
        return result

    for result in _each(data, handler, mapped):
        if result is not None:
            yield result


def _map_dict(data: Iterable[dict], handler: Handler = reraise_exception, **kw: Callable) -> Iterator[dict]:
    """Each named field through its function, in place."""
    assert kw, "map_dict names fields and their functions, as in map_dict(jpg=function)"
    for name, function in kw.items():
        assert callable(function), f"map_dict({name}={function!r}): what is given for a field is a function of it"

    def mapped(sample: dict) -> dict:
        assert isinstance(sample, dict), (
            f"map_dict takes samples that are dicts, not {type(sample).__name__}; map_tuple"
        )
        for name, function in kw.items():
            sample[name] = function(sample[name])
        return sample

    yield from _each(data, handler, mapped)


def _to_tuple(
    data: Iterable[dict],
    *args: str | Sequence[str],
    handler: Handler = reraise_exception,
    missing_is_error: bool = True,
    none_is_error: bool | None = None,
) -> Iterator[tuple]:
    """The named fields as a tuple; one string may name them all, with blanks between them."""
    refuse_none = missing_is_error if none_is_error is None else none_is_error
    fields = tuple_fields(args)

    def picked(sample: dict) -> tuple:
        values = tuple(getfirst(sample, field, missing_is_error=missing_is_error) for field in fields)
        if refuse_none and any(value is None for value in values):
            raise ValueError(f"a field of {fields} is None; none_is_error=False lets it pass")
        return values

    yield from _each(data, handler, picked)


def tuple_fields(args: Sequence[Any]) -> tuple[Any, ...]:
    """The fields that the arguments of to_tuple name."""
    if len(args) == 1 and isinstance(args[0], str) and " " in args[0]:
        return tuple(args[0].split())
    return tuple(args)


def _map_tuple(data: Iterable[Any], *args: Callable | None, handler: Handler = reraise_exception) -> Iterator[tuple]:
    """Each value of a tuple through the function at its place; None leaves it as it is."""
    for function in args:
        assert function is None or callable(function), f"map_tuple({function!r}): what is given is a function or None"

    def mapped(sample: Sequence[Any]) -> tuple:
        assert isinstance(sample, (list, tuple)), (
            f"map_tuple takes tuples, not {type(sample).__name__}: to_tuple comes before it, or map_dict is meant"
        )
        return tuple(transform_with(sample, args[: len(sample)]))

    yield from _each(data, handler, mapped)


def _rename(
    data: Iterable[dict], handler: Handler = reraise_exception, keep: bool = True, **kw: str | Sequence[str]
) -> Iterator[dict]:
    """Fields under other names: `new="old;older"`. Without `keep` there are no others, `__key__` included."""
    replaced = {old for olds in kw.values() for old in (olds.split(";") if isinstance(olds, str) else olds)}

    def renamed(sample: dict) -> dict:
        kept = {name: value for name, value in sample.items() if name not in replaced} if keep else {}
        return kept | {new: getfirst(sample, olds) for new, olds in kw.items()}

    yield from _each(data, handler, renamed)


def _rename_keys(
    source: Iterable[dict],
    *args: tuple[str, str],
    keep_unselected: bool = False,
    must_match: bool = True,
    duplicate_is_error: bool = True,
    **kw: str,
) -> Iterator[dict]:
    """Fields under other names, by pattern: `new="*.old"` or pairs; of several patterns the last counts."""
    renamings = [*args, *kw.items()]
    for sample in source:
        renamed: dict[str, Any] = {}
        matched = set()
        for path, value in sample.items():
            field = path.rpartition("/")[2].lower()
            new = next(((new, pattern) for new, pattern in reversed(renamings) if fnmatch(field, pattern)), None)
            if new is None:
                if keep_unselected:
                    renamed[path] = value
                continue
            matched.add(new[1])
            if new[0] not in renamed:
                renamed[new[0]] = value
            elif duplicate_is_error:
                raise ValueError(f"several of {list(sample)} become {new[0]}; duplicate_is_error=False takes the first")
        if must_match and (left := {pattern for _, pattern in renamings} - matched):
            raise ValueError(f"nothing in {list(sample)} fits {sorted(left)}; must_match=False lets it pass")
        yield renamed


def _extract_keys(
    source: Iterable[dict],
    *patterns: str | Sequence[str],
    duplicate_is_error: bool = True,
    ignore_missing: bool = False,
) -> Iterator[tuple]:
    """A tuple of the fields that fit each of the patterns, with or without a dot before the field."""
    wanted = [pattern.split(";") if isinstance(pattern, str) else pattern for pattern in patterns]
    for sample in source:
        values = []
        for any_of in wanted:
            fields = [name for name in sample if any(fnmatch("." + name, p) or fnmatch(name, p) for p in any_of)]
            if len(fields) > 1 and duplicate_is_error:
                raise ValueError(f"{any_of} fits all of {fields}; duplicate_is_error=False takes the first")
            if fields:
                values.append(sample[fields[0]])
            elif not ignore_missing:
                raise ValueError(f"{any_of} fits nothing in {list(sample)}; ignore_missing=True lets it pass")
        yield tuple(values)


def decode_bin(stream: Any) -> bytes:
    return stream.read()


def decode_text(stream: Any) -> str:
    return stream.read().decode("utf-8")


def decode_pickle(stream: Any) -> Any:
    permissions.demand("pickle", "unpickling of fields of shards", "`json`, `msg` and `npy` need no permission")
    return autodecode.unpickle_loads(stream.read())


default_decoders = [("*.bin", decode_bin), ("*.txt", decode_text), ("*.pyd", decode_pickle)]


def find_decoder(decoders: Sequence[tuple[str, Any]], path: str) -> Any:
    """The last of `decoders` whose pattern fits, with or without a dot before the field; None if none does."""
    field = path.rpartition("/")[2].lower()
    if field.startswith("__"):
        return _same
    fits = (
        decode for pattern, decode in reversed(decoders) if fnmatch(field, pattern) or fnmatch("." + field, pattern)
    )
    return next(fits, None)


def _same(value: Any) -> Any:
    return value


def _xdecode(
    source: Iterable[dict],
    *args: tuple[str, Any],
    must_decode: bool = True,
    defaults: Sequence[tuple[str, Any]] = default_decoders,
    **kw: Any,
) -> Iterator[dict]:
    """Decodes fields by pattern: each decoder gets a stream; False leaves its fields as they are."""
    decoders = [*defaults, *args, *(("*." + field, decode) for field, decode in kw.items())]
    for sample in source:
        decoded = {}
        for path, data in sample.items():
            decode = False if path.startswith("__") else find_decoder(decoders, path)
            if decode is None and must_decode:
                raise ValueError(f"no decoder fits '{path}'; give one, or must_decode=False to leave it as it is")
            if not decode:
                decoded[path] = data
            else:
                decoded[path] = decode(io.BytesIO(data) if isinstance(data, bytes) else data)
        yield decoded


def _associate(data: Iterable[dict], associator: Any, **kw: Any) -> Iterator[dict]:
    """Adds to each sample what a dict has, or a function gives, for its key."""
    for sample in data:
        key = sample["__key__"]
        sample.update(associator(key) if callable(associator) else associator.get(key, {}))
        yield sample


def _info(
    data: Iterable[dict],
    fmt: str | None = None,
    n: int = 3,
    every: int = -1,
    width: int = 50,
    stream: Any = None,
    name: str = "",
) -> Iterator[dict]:
    """Writes the first `n` samples, and every so-manieth, to `stream` (stderr)."""
    for number, sample in enumerate(data):
        if number < n or (every > 0 and (number + 1) % every == 0):
            to = sys.stderr if stream is None else stream
            if fmt is None:
                lines = [f"--- {name}", *(f"{field} {repr(value)[:width]}" for field, value in sample.items())]
                print("\n".join(lines), file=to)
            else:
                print(fmt.format(**sample), file=to)
        yield sample


def _log_keys(data: Iterable[dict], logfile: str | None = None) -> Iterator[dict]:
    """Appends a line for each sample to a file that several processes may share: number, worker, rank, key."""
    if not logfile:
        yield from data
        return
    import fcntl

    with open(logfile, "a") as stream:
        for number, sample in enumerate(data):
            names = ("__worker__", "__rank__", "__key__")
            line = "\t".join(str(part) for part in (number, *(sample.get(name) for name in names)))
            fcntl.flock(stream, fcntl.LOCK_EX)
            try:
                stream.write(line + "\n")
                stream.flush()
            finally:
                fcntl.flock(stream, fcntl.LOCK_UN)
            yield sample


associate = pipelinefilter(_associate)
decode = pipelinefilter(_decode)
extract_keys = pipelinefilter(_extract_keys)
info = pipelinefilter(_info)
log_keys = pipelinefilter(_log_keys)
map = pipelinefilter(_map)
map_dict = pipelinefilter(_map_dict)
map_tuple = pipelinefilter(_map_tuple)
rename = pipelinefilter(_rename)
rename_keys = pipelinefilter(_rename_keys)
to_tuple = pipelinefilter(_to_tuple)
xdecode = pipelinefilter(_xdecode)
