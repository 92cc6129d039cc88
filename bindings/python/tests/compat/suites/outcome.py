"""What a suite's tests did, read from pytest's report, and what the committed tables say about that."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


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
class Verdict:
    """A suite's results sorted by what was expected of them."""

    passed: set[str]
    skipped: set[str]
    differing: dict[str, str]
    stock: set[str]
    unexpected: dict[str, str]
    stale: set[str]

    @property
    def is_good(self) -> bool:
        return bool(self.passed) and not self.unexpected and not self.stale

    def as_json(self) -> dict:
        return {
            "counts": {"passed": len(self.passed), "skipped": len(self.skipped), "stock_fails_too": len(self.stock)},
            "differing": self.differing,
            "unexpected": self.unexpected,
            "stale": sorted(self.stale),
        }

    def __str__(self) -> str:
        lines = [f"fails   {test}: {reason}" for test, reason in sorted(self.unexpected.items())]
        lines += [f"differs {test}: {reason}" for test, reason in sorted(self.differing.items())]
        lines += [f"stale   {test}: passes or is gone; take its row out of the table" for test in sorted(self.stale)]
        lines.append(
            f"{len(self.passed)} passed, {len(self.unexpected)} failed, {len(self.differing)} differ on purpose, "
            f"{len(self.stock)} that the package does not pass here either, {len(self.skipped)} skipped"
        )
        return "\n".join(lines)


def judge(outcome: Outcome, stock: dict[str, str], differences: dict[str, str], is_whole: bool) -> Verdict:
    """Holds results against the tables; of a whole run every row of them must still be true."""
    failed = outcome.those(FAILED)
    stale = set(differences) - failed if is_whole else set(differences) & outcome.those(PASSED)
    unexpected = failed - set(differences) - set(stock)
    return Verdict(
        passed=outcome.those(PASSED),
        skipped=outcome.those(SKIPPED),
        differing={test: differences[test] for test in failed & set(differences)},
        stock=failed & set(stock) - set(differences),
        unexpected={test: outcome.reasons.get(test, "") for test in unexpected},
        stale=stale,
    )


def read_table(path: Path, suite: str) -> dict[str, str]:
    """The rows of a table for one suite: test to reason."""
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    for row in rows:
        if not all(row.get(column) for column in ("suite", "test", "reason")):
            raise ValueError(f"{path}: a row needs suite, test and reason: {row}")
    return {row["test"]: row["reason"] for row in rows if row["suite"] == suite}


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
