"""Compiles CUDA sources to PTX with the libnvrtc it is given: ptx.py LIBNVRTC SOURCE.. OUT_FOLDER.

It needs no GPU, no driver and no CUDA toolkit; which NVRTC that is, and with it the output, is ptx.sh's choice.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

# Compute capability 7.0 and up. Without fused multiply-add, so that the GPU rounds as the CPU does.
OPTIONS = [b"--gpu-architecture=compute_70", b"--std=c++17", b"--fmad=false"]


def text_of(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    """The log or the PTX of a program: NVRTC says how long it is, zero included, then writes it."""
    size = ctypes.c_size_t()
    if getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) != 0:
        return b""
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, text)
    return text.value


def compile_to_ptx(nvrtc: ctypes.CDLL, source: Path) -> bytes:
    program = ctypes.c_void_p()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None):
        sys.exit(f"error: NVRTC does not take {source}")
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    failed = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options)
    log = text_of(nvrtc, "ProgramLog", program).decode(errors="replace").strip()
    if log:
        print(log, file=sys.stderr)
    if failed or log:
        sys.exit(f"error: {source} does not compile without complaints")
    return text_of(nvrtc, "PTX", program)


def main() -> None:
    library, *sources, out = sys.argv[1:]
    # Its own helper library is looked up by name when it compiles: loaded beforehand, it is found anywhere.
    for helper in sorted(Path(library).parent.glob("libnvrtc-builtins.so*")):
        ctypes.CDLL(str(helper), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(library)
    for source in map(Path, sources):
        Path(out, source.with_suffix(".ptx").name).write_bytes(compile_to_ptx(nvrtc, source))


if __name__ == "__main__":
    main()
