"""Which stages at the beginning of a pipeline have a native form, and what they come to together: a `Plan`.

It looks at stages and runs none of them. What it does not know ends the native part; the rest runs in Python on what
the native part gives. Of a plan a program gets the same samples as from the stages; their order, where it is random, is
another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from . import autodecode, batching, cache, dataset, fields, handlers, images, ordering, splitting, tariterators, utils
from .columns import Column, NoNativeForm, column_of, present
from .gopen import local_path
from .shardlists import EndlessShards, SimpleShardList
from .stages import FilterFunction, stage_name

_GO_ON = (handlers.ignore_and_continue, handlers.warn_and_continue)


@dataclass(frozen=True)
class Plan:
    """What the first `stages` stages of a pipeline do.

    Attributes:
        stages: how many they are.
        names: what they are called, for people.
        urls: the shards, of all ranks and workers.
        endless: whether passes follow on each other without end.
        splitters: those that shards go through, in order.
        shard_buffer: the buffer that shards are drawn from, 0 for none; with samples drawn it has no meaning.
        shuffle: the largest buffer that samples are drawn from, 0 for none.
        seed: of the order, or None.
        columns: what each sample is made of.
        decoded: whether fields are decoded.
        batch: rows of a batch, or None for samples.
        partial: whether a last batch may be shorter.
        goes_on: whether bad samples and shards are left out.
        handler: told of what functions in Python raise.
        empty_check: whether it is an error that there are no samples.
    """

    stages: int = 0
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    endless: bool = False
    splitters: tuple[Callable, ...] = ()
    shard_buffer: int = 0
    shuffle: int = 0
    seed: Any = None
    columns: tuple[Column, ...] = ()
    decoded: bool = False
    batch: int | None = None
    partial: bool = True
    goes_on: bool = False
    handler: Callable = handlers.reraise_exception
    empty_check: bool = False


@dataclass
class Recognition:
    """A pipeline's plan, if it has one, and why the native part ends where it does."""

    plan: Plan | None = None
    reason: str = ""


def recognise(stages: list[Any]) -> Recognition:
    """The plan of the longest native beginning of a pipeline."""
    reader = _Reader(stages)
    try:
        reader.read()
    except NoNativeForm as error:
        reader.reason = str(error)
    return Recognition(reader.complete, reader.reason)


@dataclass
class _Reader:
    """Goes through stages one by one; `complete` is the plan of those that make whole samples."""

    stages: list[Any]
    place: int = 0
    plan: Plan = field(default_factory=Plan)
    complete: Plan | None = None
    reason: str = ""
    image_spec: str | None = None
    renamed: dict[str, str] = field(default_factory=dict)
    replaced: frozenset[str] = frozenset()
    functions: dict[str, Callable] = field(default_factory=dict)
    goes_on: bool | None = None

    def read(self) -> None:
        self._source()
        self._splitters()
        self._shuffle()
        self._samples()
        while (stage := self._next()) is not None and stage in (dataset.check_empty, splitting.non_empty):
            self._take("", empty_check=True)
        self._shuffle()
        self._decode()
        self._shuffle()
        self._rename()
        self._map_dict()
        self._shuffle()
        self._to_tuple()
        self._map_tuple()
        self._shuffle()
        self._keep()
        self._batched()

    def _next(self) -> Any:
        return self.stages[self.place] if self.place < len(self.stages) else None

    def _take(self, name: str, **changes: Any) -> None:
        self.place += 1
        names = (*self.plan.names, name) if name else self.plan.names
        self.plan = replace(self.plan, stages=self.place, names=names, **changes)

    def _keep(self) -> None:
        self.complete = replace(self.plan, goes_on=bool(self.goes_on))

    def _function(self, *functions: Callable) -> FilterFunction | None:
        """The next stage, if it is one of these functions with its arguments filled in."""
        stage = self._next()
        return stage if type(stage) is FilterFunction and any(stage.f is f for f in functions) else None

    def _handler(self, stage: Any) -> None:
        """Notes what a stage does about failures: all of them must raise, or all of them go on."""
        handler = stage.kw.get("handler") if isinstance(stage, FilterFunction) else getattr(stage, "handler", None)
        if handler is None or handler is handlers.reraise_exception:
            goes_on = False
        elif any(handler is known for known in _GO_ON):
            goes_on = True
        else:
            raise NoNativeForm(f"the handler {stage_name(handler)} has no native form: reraise_exception and "
                               "warn_and_continue have one")  # fmt: skip
        if self.goes_on not in (None, goes_on):
            raise NoNativeForm(f"{stage_name(stage)} has another handler than the stages before it")
        self.goes_on = goes_on
        self.plan = replace(self.plan, handler=handler or handlers.reraise_exception)

    def _source(self) -> None:
        stage = self._next()
        if type(stage) not in (SimpleShardList, EndlessShards):
            raise NoNativeForm(f"shards come from {stage_name(stage)}, which has no native form")
        if utils.enforce_security or os.environ.get("GOPEN_REWRITE"):
            raise NoNativeForm("URLs are rewritten or forbidden by the environment")
        remote = next((url for url in stage.urls if local_path(url) is None or url == "-"), None)
        if remote is not None:
            raise NoNativeForm(f"{remote} is no file")
        odd = next((path for path in map(local_path, stage.urls) if _is_odd(path)), None)
        if odd is not None:
            raise NoNativeForm(f"{odd} is no plain file, or its name looks like a pattern")
        if type(stage) is SimpleShardList:
            self._take("shards", urls=tuple(item["url"] for item in stage))
        else:
            self._take("shards", urls=tuple(stage.urls), endless=True, shard_buffer=len(stage.urls), seed=_seed(stage))

    def _splitters(self) -> None:
        known = (splitting.split_by_node, splitting.split_by_worker, splitting.single_node_only)
        while any(self._next() is splitter for splitter in known):
            self._take(self._next().__name__, splitters=(*self.plan.splitters, self._next()))

    def _shuffle(self) -> None:
        stage = self._next()
        if type(stage) not in (ordering.shuffle, ordering.detshuffle):
            return
        if getattr(stage, "rng", None) is not None:
            raise NoNativeForm("a shuffle draws from a generator of its own (rng)")
        if stage.compat is not None:
            raise NoNativeForm("a shuffle repeats its order (compat='strict')")
        seed = _seed(stage) if self.plan.seed is None else self.plan.seed
        buffer = int(stage.bufsize)
        if "read" in self.plan.names:
            self._take("shuffle", shuffle=max(self.plan.shuffle, buffer), seed=seed)
        else:
            self._take("shuffle shards", shard_buffer=max(self.plan.shard_buffer, buffer), seed=seed)

    def _samples(self) -> None:
        if self._next() is tariterators.tarfile_samples:
            self._take("read")
            return
        stage = self._function(tariterators.tarfile_samples)
        if stage is not None:
            self._plain_archive(stage)
            self._take("read")
            return
        opener = self._next()
        if type(opener) not in (cache.StreamingOpen, cache.FileCache):
            raise NoNativeForm(f"{stage_name(opener)} opens or reads the shards, which has no native form")
        self._handler(opener)
        self._take("")
        for function in (tariterators.tar_file_expander, tariterators.group_by_keys):
            stage = self._function(function)
            if stage is None:
                raise NoNativeForm(f"{stage_name(self._next())} stands where {function.__name__} is expected")
            self._plain_archive(stage)
            self._take("read" if function is tariterators.group_by_keys else "")

    def _plain_archive(self, stage: FilterFunction) -> None:
        given = {name for name, value in stage.kw.items() if value is not None} - {"handler"}
        if given or stage.args:
            raise NoNativeForm(f"{', '.join(sorted(given)) or 'an argument'} of {stage_name(stage)} has no native form")
        self._handler(stage)

    def _decode(self) -> None:
        stage = self._function(fields._decode)
        if stage is not None:
            unknown = set(stage.kw) - {"handler"}
            given = [autodecode.imagehandler(arg) if isinstance(arg, str) else arg for arg in stage.args]
            decoder = autodecode.Decoder(given)
        elif (stage := self._function(fields._map)) is not None and isinstance(stage.args[0], autodecode.Decoder):
            unknown, decoder = set(), stage.args[0]
            if decoder.pre != [autodecode.gzfilter] or decoder.post != [autodecode.basichandlers]:
                unknown |= {"pre or post"}
            if decoder.only is not None:
                unknown |= {"only"}
        else:
            return
        if unknown:
            raise NoNativeForm(f"decode with {', '.join(sorted(unknown))} has no native form")
        self.image_spec = _image_spec(decoder.given)
        self._handler(stage)
        self._take(f"decode({self.image_spec!r})" if self.image_spec else "decode", decoded=True)

    def _rename(self) -> None:
        stage = self._function(fields._rename)
        if stage is None:
            return
        self._handler(stage)
        renamings = {new: old for new, old in stage.kw.items() if new not in ("handler", "keep")}
        self.renamed = {new: old if isinstance(old, str) else ";".join(old) for new, old in renamings.items()}
        # Without `keep` there is nothing but what is named.
        olds = {old for names in self.renamed.values() for old in names.split(";")}
        self.replaced = frozenset(olds) if stage.kw.get("keep", True) else frozenset({"*"})
        self._take("rename")

    def _map_dict(self) -> None:
        stage = self._function(fields._map_dict)
        if stage is None:
            return
        if not self.plan.decoded:
            raise NoNativeForm("map_dict works on undecoded fields")
        self._handler(stage)
        self.functions = {name: function for name, function in stage.kw.items() if name != "handler"}
        self._take("map_dict")

    def _to_tuple(self) -> None:
        stage = self._function(fields._to_tuple)
        if stage is None:
            what = stage_name(self._next()) if self._next() is not None else "the end of the pipeline"
            raise NoNativeForm(f"{what} comes before to_tuple, which says what fields are wanted")
        if stage.kw.get("missing_is_error", True) is not True:
            raise NoNativeForm("to_tuple(missing_is_error=False) has no native form")
        self._handler(stage)
        names = [name if isinstance(name, str) else ";".join(name) for name in fields.tuple_fields(stage.args)]
        unseen = set(self.functions) - set(names)
        if unseen:
            raise NoNativeForm(f"map_dict changes {sorted(unseen)}, which to_tuple does not name like that")
        columns = [column_of(self._old(name), self.plan.decoded, self.image_spec) for name in names]
        columns = [
            replace(column, functions=(self.functions[name],)) if name in self.functions else column
            for name, column in zip(names, columns)
        ]
        if stage.kw.get("none_is_error") in (None, True):
            columns = [
                replace(column, functions=(*column.functions, present)) if column.may_be_none else column
                for column in columns
            ]
        self._take(f"to_tuple({', '.join(names)})", columns=tuple(columns))
        self._keep()

    def _old(self, name: str) -> str:
        """The fields of the archive that alternatives of to_tuple come from."""
        olds = []
        for alternative in name.split(";"):
            if alternative in self.renamed:
                olds.append(self.renamed[alternative])
            elif alternative in self.replaced or "*" in self.replaced:
                raise NoNativeForm(f"to_tuple names {alternative}, which is gone after rename")
            else:
                olds.append(alternative)
        return ";".join(olds)

    def _map_tuple(self) -> None:
        stage = self._function(fields._map_tuple)
        if stage is None:
            return
        self._handler(stage)
        columns = [
            replace(column, functions=(*column.functions, function)) if function is not None else column
            for column, function in zip(self.plan.columns, [*stage.args, *[None] * len(self.plan.columns)])
        ]
        self._take("map_tuple", columns=tuple(columns))
        self._keep()

    def _batched(self) -> None:
        stage = self._function(batching._batched)
        if stage is None:
            return
        arguments = dict(zip(("batchsize", "collation_fn", "partial"), stage.args)) | stage.kw
        if arguments.get("collation_fn", batching.default_collation_fn) is not batching.default_collation_fn:
            raise NoNativeForm("batched has a collation function of its own")
        if self.goes_on:
            raise NoNativeForm("batches are filled up in Python where bad samples are left out")
        size = arguments.get("batchsize", 20)
        self._take(f"batched({size})", batch=size, partial=bool(arguments.get("partial", True)))
        self._keep()


def _image_spec(given: list[Any]) -> str | None:
    if not given:
        return None
    handler = given[0]
    if len(given) > 1 or type(handler) is not images.ImageHandler:
        raise NoNativeForm(f"the decoder {stage_name(handler if len(given) == 1 else given[1])} has no native form")
    if handler.extensions != set(images.IMAGE_EXTENSIONS):
        raise NoNativeForm("the image handler has extensions of its own")
    if images.imagespecs[handler.imagespec][2] != "rgb":
        raise NoNativeForm(f"decode({handler.imagespec!r}) has no native form: specs with rgb have one, such as 'pil'")
    return handler.imagespec


def _seed(stage: Any) -> Any:
    """The seed that somebody gave to a stage."""
    return None if getattr(stage, "is_drawn", False) else stage.seed


def _is_odd(path: str) -> bool:
    """Whether the native side would take the path for several shards, or cannot read it at any place."""
    return not set(path).isdisjoint("{}*?[]") or (os.path.exists(path) and not os.path.isfile(path))
