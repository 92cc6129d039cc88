"""Puts this package in webdataset's place, for libraries that import that name themselves.

It changes `sys.modules` of this process and nothing on disk. Processes that are spawned run it again where the main
script calls it at its top; `python -m brimful.webdataset SCRIPT` does so for any script.
"""

from __future__ import annotations

import importlib
import sys

NAME = "webdataset"

# The modules that webdataset has as well.
MODULES = (
    "autodecode",
    "cache",
    "compat",
    "extradatasets",
    "filters",
    "gopen",
    "handlers",
    "mix",
    "pipeline",
    "pytorch",
    "shardlists",
    "tariterators",
    "tenbin",
    "utils",
    "writer",
)


def install() -> None:
    """Makes `import webdataset` find brimful.webdataset, in this process.

    Raises:
        RuntimeError: if the webdataset package was imported before.
    """
    package = sys.modules[__package__]
    there = sys.modules.get(NAME)
    if there is not None and there is not package:
        raise RuntimeError(
            "webdataset was imported before install(), so that parts of the program would go on with it; call "
            "brimful.webdataset.install() before anything imports webdataset"
        )
    sys.modules[NAME] = package
    for module in MODULES:
        sys.modules[f"{NAME}.{module}"] = importlib.import_module(f"{__package__}.{module}")


def uninstall() -> None:
    """Takes `install()` back for imports to come; what was imported stays."""
    if sys.modules.get(NAME) is sys.modules[__package__]:
        for name in (NAME, *(f"{NAME}.{module}" for module in MODULES)):
            sys.modules.pop(name, None)
