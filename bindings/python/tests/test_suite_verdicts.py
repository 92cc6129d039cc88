"""What the run of another package's suite comes to: which results the committed tables explain."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

COMPAT = Path(__file__).resolve().parent / "compat"
sys.path.insert(0, str(COMPAT))

from suites.outcome import FAILED, PASSED, SKIPPED, Outcome, Tables, judge, read_tables  # noqa: E402 - beside the suites

TABLES = Tables(
    differences={"d": "on purpose"},
    stock={"s": "no network", "b": "a busy machine"},
    sometimes={"b"},
    passing={"p", "d"},
)
TRUE = {"p": PASSED, "d": FAILED, "s": FAILED, "b": FAILED}


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, {}),
        ({"b": PASSED}, {}),
        ({"n": SKIPPED}, {}),
        ({"n": FAILED}, {"unexpected": {"n"}}),
        ({"p": SKIPPED}, {"lost": {"p"}}),
        ({"p": None, "n": PASSED}, {"lost": {"p"}}),
        ({"d": PASSED}, {"stale": {"d"}}),
        ({"s": PASSED}, {"stale": {"s"}}),
        ({"s": None}, {"stale": {"s"}}),
        ({"b": None}, {"stale": {"b"}}),
    ],
)
def test_a_whole_run_is_good_only_while_every_row_is_true(changes, wrong):
    results = {test: result for test, result in {**TRUE, **changes}.items() if result is not None}
    verdict = judge(Outcome(results), TABLES, is_whole=True)
    found = {name: set(getattr(verdict, name)) for name in ("unexpected", "lost", "stale")}
    assert {name: tests for name, tests in found.items() if tests} == wrong
    assert verdict.is_good == (not wrong)
    assert ("lost " in str(verdict)) == ("lost" in wrong)


def test_a_selection_may_leave_tests_out():
    assert judge(Outcome({"p": PASSED}), TABLES, is_whole=False).is_good
    assert judge(Outcome({"p": PASSED, "s": PASSED}), TABLES, is_whole=False).stale == {"s"}


@pytest.mark.parametrize("suite", ["webdataset", "torch"])
def test_the_committed_tables_agree(suite):
    tables = read_tables(COMPAT, suite)
    assert len(tables.passing) > 100
    assert not tables.passing & (set(tables.stock) - tables.sometimes)
    assert set(tables.differences) <= tables.passing
