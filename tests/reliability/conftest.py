"""The table at the end: for each case, how many were tried and how many survived."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Tally = Callable[[str, int, int], None]


@pytest.fixture
def tally(record_property) -> Tally:
    """Counts what was tried and what survived under a case."""

    def enter(case: str, tried: int, survived: int) -> None:
        record_property("tally", (case, tried, survived))

    return enter


@pytest.fixture
def survives(tally) -> Callable[[str, bool], None]:
    """Counts what was tried once under a case, and fails where it did not survive."""

    def check(case: str, survived: bool) -> None:
        tally(case, 1, survived)
        assert survived

    return check


def pytest_terminal_summary(terminalreporter) -> None:
    cases: dict[str, list[int]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, value in report.user_properties:
                    if name == "tally":
                        case, tried, survived = value
                        cases[case] = [
                            sum(pair) for pair in zip(cases.get(case, (0, 0)), (tried, survived), strict=True)
                        ]
    if not cases:
        return
    width = max(map(len, cases))
    terminalreporter.section("reliability")
    terminalreporter.write_line(f"{'case':{width}}  {'tried':>6}  {'survived':>8}")
    for case in sorted(cases, key=lambda case: (int(case.split()[0]), case)):
        tried, survived = cases[case]
        colour = {"green": True} if tried == survived else {"red": True}
        terminalreporter.write_line(f"{case:{width}}  {tried:>6}  {survived:>8}", **colour)
