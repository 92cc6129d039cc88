"""Prints the rows of `stock.tsv`: tests that webdataset itself does not pass offline, run where it can be imported."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from suites import webdataset
from suites.outcome import FAILED


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: stock.py PATH[@REVISION] of webdataset", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as work:
        outcome = webdataset.run(sys.argv[1], Path(work), None, package="webdataset")
    print("suite\ttest\treason")
    for test in sorted(outcome.those(FAILED)):
        print(f"webdataset\t{test}\t{outcome.reasons.get(test) or 'fails'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
