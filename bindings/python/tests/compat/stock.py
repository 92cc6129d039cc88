"""Prints the rows of `stock.tsv` and `passing.tsv`: what a package itself does as `run_suite.py` runs its tests."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from suites import torch, webdataset
from suites.outcome import FAILED, FAILS, PASSED

SUITES = {"webdataset": webdataset, "torch": torch}


def main() -> int:
    if len(sys.argv) != 3 or sys.argv[1] not in SUITES:
        print(f"usage: stock.py {'|'.join(SUITES)} PATH[@REVISION]", file=sys.stderr)
        return 2
    name, source = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work:
        outcome = SUITES[name].run(source, Path(work), None, package=name)
    print("suite\ttest\tresult\treason")
    for test in sorted(outcome.those(FAILED)):
        print(f"{name}\t{test}\t{FAILS}\t{outcome.reasons.get(test) or FAILS}")
    print("suite\ttest")
    for test in sorted(outcome.those(PASSED)):
        print(f"{name}\t{test}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
