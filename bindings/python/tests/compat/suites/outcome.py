"""What a suite's tests did, read from pytest's report, and what the committed tables say about that."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

# What `stock.tsv` says of a test.
FAILS, MAY_FAIL = "fails", "may fail"


@dataclass
class Outcome:
    """Results by test, as `file.py::Class::name`, with the first line of what went wrong."""

    results: dict[str, str]
    reasons: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def those(self, result: str) -> set[str]:
        return {test for test, what in self.results.items() if what == result}

    def as_json(self) -> dict:
        return {"versions": self.versions, "notes": self.notes, "results": self.results, "reasons": self.reasons}


@dataclass
class Tables:
    """What is known of a suite's tests.

    Attributes:
        differences: those that brimful does not pass on purpose, with the reason.
        stock: those that the package itself does not pass, with the reason.
        sometimes: those of them that pass or not, as the machine is busy.
        passing: those that the package itself passed when the tables were made.
    """

    differences: dict[str, str]
    stock: dict[str, str]
    sometimes: set[str] = field(default_factory=set)
    passing: set[str] = field(default_factory=set)


@dataclass
class Verdict:
    """A suite's results sorted by what was expected of them."""

    passed: set[str]
    skipped: set[str]
    differing: dict[str, str]
    stock: set[str]
    unexpected: dict[str, str]
    lost: set[str]
    stale: set[str]

    @property
    def is_good(self) -> bool:
        return bool(self.passed) and not self.unexpected and not self.lost and not self.stale

    def as_json(self) -> dict:
        return {
            "counts": {"passed": len(self.passed), "skipped": len(self.skipped), "stock_fails_too": len(self.stock)},
            "differing": self.differing,
            "unexpected": self.unexpected,
            "lost": sorted(self.lost),
            "stale": sorted(self.stale),
        }

    def __str__(self) -> str:
        lines = [f"fails   {test}: {reason}" for test, reason in sorted(self.unexpected.items())]
        lines += [f"differs {test}: {reason}" for test, reason in sorted(self.differing.items())]
        lines += [f"lost    {test}: passes on the package, and is skipped or gone here" for test in sorted(self.lost)]
        lines += [f"stale   {test}: passes or is gone; take its row out of the table" for test in sorted(self.stale)]
        lines.append(
            f"{len(self.passed)} passed, {len(self.unexpected)} failed, {len(self.differing)} differ on purpose, "
            f"{len(self.stock)} that the package does not pass here either, {len(self.skipped)} skipped"
        )
        return "\n".join(lines)


def judge(outcome: Outcome, tables: Tables, is_whole: bool) -> Verdict:
    """Holds results against the tables; of a whole run every row of them must still be true."""
    failed, passed = outcome.those(FAILED), outcome.those(PASSED)
    differences, stock = set(tables.differences), set(tables.stock)
    # What depends on how busy the machine is may pass as well.
    must_fail = differences | (stock - tables.sometimes)
    stale = must_fail - failed if is_whole else must_fail & passed
    lost = set()
    if is_whole:
        stale |= tables.sometimes - set(outcome.results)
        lost = tables.passing - passed - failed - differences - stock
    return Verdict(
        passed=passed,
        skipped=outcome.those(SKIPPED),
        differing={test: tables.differences[test] for test in failed & differences},
        stock=failed & stock - differences,
        unexpected={test: outcome.reasons.get(test, "") for test in failed - differences - stock},
        lost=lost,
        stale=stale,
    )


def read_tables(folder: Path, suite: str) -> Tables:
    """What is known of one suite: the rows of `differences.tsv`, `stock.tsv` and `passing.tsv`."""
    differences = _rows(folder / "differences.tsv", suite, ("reason",))
    stock = _rows(folder / "stock.tsv", suite, ("result", "reason"))
    for row in stock:
        if row["result"] not in (FAILS, MAY_FAIL):
            raise ValueError(f"{folder / 'stock.tsv'}: the result is {FAILS!r} or {MAY_FAIL!r}: {row}")
    return Tables(
        differences={row["test"]: row["reason"] for row in differences},
        stock={row["test"]: row["reason"] for row in stock},
        sometimes={row["test"] for row in stock if row["result"] == MAY_FAIL},
        passing={row["test"] for row in _rows(folder / "passing.tsv", suite, ())},
    )


def _rows(path: Path, suite: str, columns: tuple[str, ...]) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    for row in rows:
        if not all(row.get(column) for column in ("suite", "test", *columns)):
            raise ValueError(f"{path}: a row needs {', '.join(('suite', 'test', *columns))}: {row}")
    return [row for row in rows if row["suite"] == suite]


def read_junit(path: Path) -> Outcome:
    """The results in a report that `pytest --junitxml` wrote."""
    outcome = Outcome({})
    for case in ElementTree.parse(path).iter("testcase"):
        test = _name(case)
        trouble = case.find("failure") if case.find("failure") is not None else case.find("error")
        if trouble is not None:
            outcome.results[test] = FAILED
            outcome.reasons[test] = trouble.get("message", "").partition("\n")[0]
        elif outcome.results.get(test) != FAILED:
            outcome.results[test] = PASSED if case.find("skipped") is None else SKIPPED
    return outcome


def _name(case: ElementTree.Element) -> str:
    """pytest gives `tests.test_cache.TestFileCache` as the class; a module that cannot be collected has no class."""
    classname, name = case.get("classname", ""), case.get("name", "")
    parts = classname.split(".") if classname else name.split(".")
    module = next((at for at, part in enumerate(parts) if part.startswith("test_")), 0)
    inner = parts[module + 1 :]
    return "::".join([f"{parts[module]}.py", *inner, *([name] if classname else ["(collection)"])])
