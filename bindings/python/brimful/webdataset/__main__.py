"""`python -m brimful.webdataset SCRIPT ARGS...` runs a script whose `import webdataset` finds brimful.webdataset.

`-m MODULE` in place of SCRIPT runs a module, as Python does.
"""

from __future__ import annotations

import os
import runpy
import sys

from brimful.webdataset import install


def main() -> int:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        print(__doc__.strip())
        return 0 if arguments[:1] != ["-m"] and arguments else 2
    install()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
