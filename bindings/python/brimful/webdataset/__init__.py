"""webdataset's classes and functions on brimful's engine: `import brimful.webdataset as wds` runs such scripts.

It neither imports nor needs the webdataset package. The part of a pipeline that brimful recognises (shards, shuffle,
decode, to_tuple, torchvision transforms, batched) runs natively, the rest in Python; `explain()` of a pipeline says
which. `install()` lets libraries that import webdataset themselves find this package in its place.
"""

# ruff: noqa: F401 - what is imported here is what the package has

from __future__ import annotations

from . import (
    autodecode,
    cache,
    compat,
    extradatasets,
    filters,
    handlers,
    mix,
    pipeline,
    pytorch,
    shardlists,
    tariterators,
    tenbin,
    utils,
    writer,
)
from .autodecode import (
    Continue,
    Decoder,
    DecodingError,
    gzfilter,
    handle_extension,
    imagehandler,
    pytorch_weights_only,
    torch_audio,
    torch_loads,
    torch_video,
)
from .cache import LRUCleanup, pipe_cleaner
from .dataset import FluidWrapper, WebDataset
from .extradatasets import MockDataset, with_epoch, with_length
from .filters import (
    Cached,
    LMDBCached,
    associate,
    batched,
    decode,
    detshuffle,
    extract_keys,
    getfirst,
    info,
    log_keys,
    map,
    map_dict,
    map_tuple,
    pipelinefilter,
    rename,
    rename_keys,
    rsample,
    select,
    shuffle,
    slice,
    to_tuple,
    transform_with,
    unbatched,
    unlisted,
    xdecode,
)
from .fluent import FluidInterface
from .gopen import gopen, gopen_schemes
from .handlers import ignore_and_continue, ignore_and_stop, reraise_exception, warn_and_continue, warn_and_stop
from .installation import install, uninstall
from .loader import WebLoader
from .mix import RandomMix, RoundRobin
from .permissions import allow, forbid
from .pipeline import DataPipeline
from .shardlists import (
    EndlessShards,
    MultiShardSample,
    ResampledShards,
    SimpleShardList,
    non_empty,
    resampled,
    shardspec,
    single_node_only,
    split_by_node,
    split_by_worker,
)
from .stages import PipelineStage
from .tariterators import tarfile_samples, tarfile_to_samples
from .utils import repeatedly
from .writer import ShardWriter, TarWriter, numpy_dumps, torch_dumps

# The version of webdataset whose interface this is; libraries compare it.
__version__ = "1.0.2"
