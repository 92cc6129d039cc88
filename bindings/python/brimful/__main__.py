"""The `brimful` command of the wheel: `demo` runs here, on the loader that training uses; the rest runs natively."""

from __future__ import annotations

import signal
import sys

from . import _native


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["demo"]:
        from .demo import main as demo

        return demo(argv[1:])
    # The native side never looks at Python's flag: Ctrl-C must end the process itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.cli_main(["brimful", *argv])


if __name__ == "__main__":
    sys.exit(main())
