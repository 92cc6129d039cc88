"""Prints the rows of `stock.tsv`: tests that a package itself does not pass under the conditions of `run_suite.py`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from suites import torch, webdataset
from suites.outcome import FAILED

SUITES = {"webdataset": webdataset, "torch": torch}


def main() -> int:
    if len(sys.argv) != 3 or sys.argv[1] not in SUITES:
        print(f"usage: stock.py {'|'.join(SUITES)} PATH[@REVISION]", file=sys.stderr)
        return 2
    name, source = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work:
        outcome = SUITES[name].run(source, Path(work), None, package=name)
    print("suite\ttest\treason")
    for test in sorted(outcome.those(FAILED)):
        print(f"{name}\t{test}\t{outcome.reasons.get(test) or 'fails'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
