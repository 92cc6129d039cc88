"""The build backend of the wheel: maturin's, with libjpeg-turbo built in where this machine can build it.

It decides one feature and nothing else; every step is maturin's.
"""

import os
import shutil
import sys

import maturin
from maturin import build_sdist, get_requires_for_build_sdist, prepare_metadata_for_build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def get_requires_for_build_wheel(config_settings=None):
    """maturin's requirements, and cmake where libjpeg-turbo can be built but for it."""
    requires = list(maturin.get_requires_for_build_wheel(config_settings))
    if shutil.which("nasm") and not shutil.which("cmake"):
        requires.append("cmake")
    return requires


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _choose_features()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _choose_features()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def _choose_features():
    missing = [tool for tool in ("cmake", "nasm") if not shutil.which(tool)]
    if missing:
        print(f"without libjpeg-turbo: {' and '.join(missing)} not found", file=sys.stderr)
        return
    arguments = os.environ.get("MATURIN_PEP517_ARGS", "")
    os.environ["MATURIN_PEP517_ARGS"] = f"{arguments} --features turbo".strip()
