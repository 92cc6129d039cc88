"""Runs the test suites of the packages that brimful stands in for, and holds the results against committed tables.

    run_suite.py [--webdataset PATH] [--torch PATH] [--select EXPRESSION] [--out results.json]

No suite is part of this project: PATH is a checkout of the package's repository, or a git repository from which one
revision is taken (`PATH@REVISION`). webdataset's tests run offline and with their imports rewritten, where the package
itself cannot be imported; torch's run with brimful's class in the place of torch's. `stock.tsv` says which tests the
package does not pass under these conditions itself, `differences.tsv` which ones brimful does not, each with a reason,
and `passing.tsv` which ones the package passes. Every other failure, a test that passes there and is skipped or gone
here, and a row that is no longer true make this program exit with 1.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import suites.torch
import suites.webdataset
from suites.outcome import Outcome, Verdict, judge, read_tables

HERE = Path(__file__).resolve().parent

# A suite is a module with `run(source, work, selection) -> Outcome`; its name is also that of its option.
SUITES = {"webdataset": suites.webdataset, "torch": suites.torch}


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    chosen = {name: source for name in SUITES if (source := getattr(options, name)) is not None}
    if not chosen:
        print("nothing to run: give " + " or ".join(f"--{name} PATH" for name in SUITES), file=sys.stderr)
        return 2
    report = {"machine": machine(), "suites": {}}
    verdicts = []
    for name, source in chosen.items():
        with tempfile.TemporaryDirectory(prefix=f"brimful-{name}-suite-") as work:
            outcome = SUITES[name].run(source, Path(work), options.select)
        # A selection leaves tests out, so that rows of the tables may well have no test.
        verdict = judge(outcome, read_tables(HERE, name), is_whole=options.select is None)
        show(name, outcome, verdict)
        report["suites"][name] = {**outcome.as_json(), **verdict.as_json()}
        verdicts.append(verdict)
    if options.out:
        Path(options.out).write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    return 0 if all(verdict.is_good for verdict in verdicts) else 1


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in SUITES:
        parser.add_argument(f"--{name}", metavar="PATH[@REVISION]", help=f"a checkout of {name}, or a git repository")
    parser.add_argument("--select", metavar="EXPRESSION", help="run those tests only that pytest's -k would pick")
    parser.add_argument("--out", metavar="FILE", help="write results and versions as JSON")
    return parser.parse_args(argv)


def machine() -> dict[str, str]:
    versions = {"python": platform.python_version(), "system": platform.platform()}
    for package in ("brimful", "numpy", "torch", "torchvision", "pillow", "pytest"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    if versions["brimful"] == "not installed":
        import brimful

        versions["brimful"] = brimful.__version__
    return versions


def show(name: str, outcome: Outcome, verdict: Verdict) -> None:
    versions = ", ".join(f"{key} {value}" for key, value in sorted(outcome.versions.items()))
    print(f"== {name}: {versions}")
    for note in outcome.notes:
        print(f"note: {note}")
    print(verdict)


if __name__ == "__main__":
    sys.exit(main())
