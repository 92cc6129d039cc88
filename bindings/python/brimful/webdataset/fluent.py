"""The stages as methods: each makes a copy of the pipeline with one stage more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import autodecode, batching, fields, keeping, ordering
from .handlers import reraise_exception


class FluidInterface:
    """Methods of the stages' names; what they do stands with the stages."""

    compose: Callable[..., Any]
    strict: bool
    compat: str | None

    def batched(self, batchsize: int, collation_fn: Any = batching.default_collation_fn, partial: bool = True) -> Any:
        return self.compose(batching.batched(batchsize, collation_fn=collation_fn, partial=partial))

    def unbatched(self) -> Any:
        return self.compose(batching.unbatched())

    def listed(self, batchsize: int, partial: bool = True) -> Any:
        # webdataset takes `partial` and does nothing with it.
        return self.compose(batching.batched(batchsize, collation_fn=None, partial=partial or self.strict))

    def unlisted(self) -> Any:
        return self.compose(batching.unlisted())

    def log_keys(self, logfile: str | None = None) -> Any:
        return self.compose(fields.log_keys(logfile))

    def shuffle(self, size: int, **kw: Any) -> Any:
        """Draws from a buffer of `size` samples; below 1 it does nothing."""
        return self if size < 1 else self.compose(ordering.shuffle(size, **{"compat": self.compat, **kw}))

    def map(self, f: Callable[[Any], Any], handler: Any = reraise_exception) -> Any:
        return self.compose(fields.map(f, handler=handler))

    def decode(
        self,
        *args: Any,
        pre: Any = None,
        post: Any = None,
        only: Any = None,
        partial: bool = False,
        handler: Any = reraise_exception,
    ) -> Any:
        """Decodes the fields; `args` are image specs such as "rgb8" and handlers, the rest is `Decoder`'s."""
        handlers = [autodecode.imagehandler(arg) if isinstance(arg, str) else arg for arg in args]
        return self.map(autodecode.Decoder(handlers, pre=pre, post=post, only=only, partial=partial), handler=handler)

    def map_dict(self, handler: Any = reraise_exception, **kw: Any) -> Any:
        return self.compose(fields.map_dict(handler=handler, **kw))

    def select(self, predicate: Callable[[Any], Any], **kw: Any) -> Any:
        return self.compose(ordering.select(predicate, **kw))

    def to_tuple(self, *args: Any, **kw: Any) -> Any:
        return self.compose(fields.to_tuple(*args, **kw))

    def map_tuple(self, *args: Any, handler: Any = reraise_exception) -> Any:
        return self.compose(fields.map_tuple(*args, handler=handler))

    def slice(self, *args: Any) -> Any:
        return self.compose(ordering.slice(*args))

    def rename(self, **kw: Any) -> Any:
        return self.compose(fields.rename(**kw))

    def rsample(self, p: float = 0.5) -> Any:
        return self.compose(ordering.rsample(p))

    def rename_keys(self, *args: Any, **kw: Any) -> Any:
        return self.compose(fields.rename_keys(*args, **kw))

    def extract_keys(self, *args: Any, **kw: Any) -> Any:
        return self.compose(fields.extract_keys(*args, **kw))

    def xdecode(self, *args: Any, **kw: Any) -> Any:
        return self.compose(fields.xdecode(*args, **kw))

    def mcached(self) -> Any:
        return self.compose(keeping.Cached())

    def lmdb_cached(self, *args: Any, **kw: Any) -> Any:
        return self.compose(keeping.LMDBCached(*args, **kw))
