"""The `brimful` command of the wheel: `demo` runs here, on the loader that training uses, and so do the bench that
trains a model and the stress test; the rest runs natively.
"""

from __future__ import annotations

import os
import signal
import sys

from . import _native, devices


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["demo"]:
        from .demo import main as demo

        return demo(argv[1:])
    if argv[:1] == ["tune"]:
        from .tune.command import main as tune

        return tune(argv[1:])
    if argv[:1] == ["top"]:
        from .live import main as top

        return top(argv[1:])
    if _trains(argv):
        from .bench_training import main as bench

        return bench(argv[2:])
    os.environ.setdefault("BRIMFUL_NVJPEG_PATH", os.pathsep.join(devices.nvidia_folders()))
    # The native side never looks at Python's flag: Ctrl-C must end the process itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.cli_main(["brimful", *argv])


def _trains(argv: list[str]) -> bool:
    """Whether the command is `bench loader --train MODEL`."""
    return argv[:2] == ["bench", "loader"] and any(word.partition("=")[0] == "--train" for word in argv)


if __name__ == "__main__":
    sys.exit(main())
